"""Counts the segments that a switch or a way back compared, for its report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rlm.migration.topic_replay import TopicReplay
from rlmm.segment import SegmentState


@dataclass(frozen=True, slots=True)
class Compared:
    """The counts of one partition of the metadata topic, read up to `end` (exclusive), that was
    found equal to the metadata log: its `partitions` and their `segments` by state, each with id,
    size, epochs and times; and the number of `epochs` with a highest offset, the largest of which
    is `highest_offset`, None without one.
    """

    metadata_partition: int
    end: int
    partitions: int
    segments: Mapping[SegmentState, int]
    epochs: int
    highest_offset: int | None


def counted(metadata_partition: int, end: int, replay: TopicReplay) -> Compared:
    """The counts of the replay of a partition of the topic."""
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
