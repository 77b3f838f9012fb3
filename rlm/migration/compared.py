"""Counts what a switch or a way back compared, for its report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rlm.migration.topic_replay import TopicReplay
from rlmm.segment import SegmentState


@dataclass(frozen=True, slots=True)
class Compared:
    """One partition of the metadata topic, read up to `end`, exclusive, that has the same as the
    metadata log: so many `partitions` with their `segments`, each with id, state, size, epochs and
    times; and the highest offset of so many leader epochs, the largest of which is
    `highest_offset`, None without one.
    """

    metadata_partition: int
    end: int
    partitions: int
    segments: Mapping[SegmentState, int]
    epochs: int
    highest_offset: int | None


def counted(metadata_partition: int, end: int, replay: TopicReplay) -> Compared:
    """All that the replay of a partition has."""
    highest = [
        epoch.highest_offset
        for cache in replay.caches.values()
        for epoch in cache.epochs.values()
        if epoch.highest_offset is not None
    ]
    states = Counter(row.state for cache in replay.caches.values() for row in cache.rows.values())
    return Compared(
        metadata_partition, end, len(replay.caches), dict(states), len(highest),
        max(highest, default=None),
    )  # fmt: skip
