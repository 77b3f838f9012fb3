"""What a query sees of the tier at one moment: its partitions, their segments and their ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from kafka_formats.errors import NotFound
from pipeline.catalogue.tiered_segment import Catalogue, PartitionBounds, TieredSegment
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.read.transactions import stable_end
from pipeline.source.offsets import unknown_partitions
from pipeline.source.options import Subscription
from pipeline.source.timestamp_lookup import first_at_or_after
from rlm.read_request import Isolation
from rlmm.segment import RemoteLogSegmentId, TopicIdPartition

LOOK_UPS_AT_ONCE = 8
"""Partitions whose transactions or times are looked up at the same time."""

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """`bounds.latest` is where a reader of this isolation has to stop (exclusive), `tier_end` where
    the tier itself ends; `segments` are all from the wanted offset on, behind the reader's end too:
    they tell what was aborted before it.
    """

    bounds: PartitionBounds
    segments: Sequence[TieredSegment]
    tier_end: int


class TierView:
    """Asks a catalogue, and the stores for what it does not know. One caller at a time."""

    def __init__(self, catalogue: Catalogue, settings: ReadSettings) -> None:
        self.catalogue = catalogue
        self.settings = settings
        self._stable_ends: dict[TopicIdPartition, tuple[RemoteLogSegmentId, int]] = {}

    def subscribed(
        self, subscription: Subscription, *, absent_ok: bool = False
    ) -> list[TopicIdPartition]:
        """The partitions, ascending. NotFound names a topic or partition that is not tiered, unless
        `absent_ok`; a pattern may match nothing.
        """
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics: Iterable[str] = filter(pattern.fullmatch, self.catalogue.topics())
        else:
            topics = subscription.topics or subscription.assign
        found: list[TopicIdPartition] = []
        for topic in topics:
            try:
                partitions = self.catalogue.partitions(topic)
            except NotFound:
                if absent_ok:
                    continue
                raise
            wanted = subscription.assign.get(topic)
            if wanted is not None:
                there = [partition.partition for partition in partitions]
                if not absent_ok and not set(wanted) <= set(there):
                    raise unknown_partitions(topic, wanted, there)
                partitions = [one for one in partitions if one.partition in wanted]
            found.extend(partitions)
        return sorted(found)

    def partitions(
        self, wanted: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PartitionView]:
        """What there is of each partition from an offset on; one that has gone is left out."""
        views = {}
        self.catalogue.prepare(list(wanted))
        for partition, first_offset in wanted.items():
            try:
                bounds = self.catalogue.bounds(partition)
                segments = self.catalogue.segments(partition, first_offset)
            except NotFound:
                continue
            views[partition] = PartitionView(bounds, segments, bounds.latest)
        if self.settings.isolation is Isolation.READ_UNCOMMITTED:
            return views
        ends = _at_once(views, lambda partition: self._stable_end(partition, views[partition]))
        return {
            partition: PartitionView(
                PartitionBounds(view.bounds.earliest, min(view.bounds.latest, ends[partition])),
                view.segments,
                view.tier_end,
            )
            for partition, view in views.items()
        }

    def _stable_end(self, partition: TopicIdPartition, view: PartitionView) -> int:
        """Asked once for each last segment: what is tiered never changes."""
        if not view.segments:
            return view.bounds.latest
        last = view.segments[-1].segment_id
        known = self._stable_ends.get(partition)
        if known is None or known[0] != last:
            known = (
                last,
                stable_end(view.segments, self.catalogue.stores, self.settings.aiven_keys),
            )
            self._stable_ends[partition] = known
        return known[1]

    def first_offsets(
        self,
        times_ms: Mapping[TopicIdPartition, int],
        views: Mapping[TopicIdPartition, PartitionView],
    ) -> dict[TopicIdPartition, int | None]:
        """The first record of each partition at or after its time; None where all are older."""

        def look_up(partition: TopicIdPartition) -> int | None:
            view = views[partition]
            slices = (
                SegmentSlice(one, one.first_offset, min(one.last_offset, view.bounds.latest - 1))
                for one in view.segments
                if one.first_offset < view.bounds.latest
            )
            return first_at_or_after(
                slices, times_ms[partition], self.catalogue.stores, self.settings
            )

        return _at_once(times_ms, look_up)


def _at_once(keys: Iterable[Key], look_up: Callable[[Key], Value]) -> dict[Key, Value]:
    every = list(keys)
    if len(every) < 2:
        return {key: look_up(key) for key in every}
    with ThreadPoolExecutor(LOOK_UPS_AT_ONCE, thread_name_prefix="strandline-plan") as pool:
        return dict(zip(every, pool.map(look_up, every), strict=True))
