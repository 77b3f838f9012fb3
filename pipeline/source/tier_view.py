"""A query's view of the tier at one moment: partitions, their segments and their ends."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TypeVar

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import (
    Catalogue,
    NoSegment,
    PartitionBounds,
    TieredSegment,
)
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.read.transactions import stable_end
from pipeline.source.offsets import unknown_partitions
from pipeline.source.options import Subscription
from pipeline.source.timestamp_lookup import first_at_or_after
from rlm.data_plane.read_request import Isolation
from rlmm.segment import RemoteLogSegmentId

LOOK_UPS_AT_ONCE = 8
"""Partitions whose transactions or times are looked up at once, by threads that share the stores:
opening a store for each takes longer than its requests.
"""

Value = TypeVar("Value")
_Last = tuple[RemoteLogSegmentId, int]
"""The last segment of a partition, and the last offset that it serves."""

log = logging.getLogger("strandline.source")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition at that moment. `bounds.latest` is the end for a reader of this isolation
    (exclusive), `tier_end` the end of the tier itself. `segments` are all from the wanted offset
    on, also after the reader's end, since they show which transactions before it were aborted.
    """

    bounds: PartitionBounds
    segments: Sequence[TieredSegment]
    tier_end: int

    @property
    def lost_to(self) -> int:
        """The end for a reader that reads once, to which offsets that only segments in doubt have
        are lost; a later read may find them served.
        """
        in_doubt_to = self.bounds.in_doubt_to if self.bounds.latest == self.tier_end else 0
        return max(self.bounds.latest, in_doubt_to)


class TierView:
    """Asks a catalogue, and the stores for the rest. One caller at a time."""

    def __init__(self, catalogue: Catalogue, settings: ReadSettings) -> None:
        self.catalogue = catalogue
        self.settings = settings
        self.unfinished: set[TopicIdPartition] = set()
        """Requested partitions that have a folder, but no segment yet."""
        self._stable_ends: dict[TopicIdPartition, tuple[_Last, int]] = {}

    def subscribed(
        self, subscription: Subscription, *, absent_ok: bool = False, quiet_ok: bool = False
    ) -> list[TopicIdPartition]:
        """The partitions, ascending. NotFound names a topic or partition that is not tiered, unless
        `absent_ok`; with `quiet_ok`, partitions of a tiered topic may have no segment yet. A
        pattern may match nothing.
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
                lacking = sorted(set(wanted) - set(there))
                if lacking and not (absent_ok or quiet_ok):
                    raise unknown_partitions(topic, wanted, there)
                if lacking and quiet_ok:
                    log.warning(
                        "partitions %s of %s have no tiered segment: they are read as empty",
                        ", ".join(map(str, lacking)),
                        topic,
                    )
                partitions = [one for one in partitions if one.partition in wanted]
            found.extend(partitions)
        return sorted(found)

    def partitions(
        self, wanted: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PartitionView]:
        """The view of each partition from an offset on; deleted partitions are left out, as are
        `unfinished` ones.
        """
        views = {}
        self.unfinished -= wanted.keys()
        self.catalogue.prepare(list(wanted))
        for partition, first_offset in wanted.items():
            try:
                bounds = self.catalogue.bounds(partition)
                segments = self.catalogue.segments(partition, first_offset)
            except NotFound as error:
                if isinstance(error, NoSegment):
                    self.unfinished.add(partition)
                continue
            views[partition] = PartitionView(bounds, segments, bounds.latest)
        if self.settings.isolation is Isolation.READ_UNCOMMITTED:
            return views
        ends = self._stable_ends_of(views)
        return {partition: _decided(view, ends[partition]) for partition, view in views.items()}

    def _stable_ends_of(
        self, views: Mapping[TopicIdPartition, PartitionView]
    ) -> dict[TopicIdPartition, int]:
        """The end for read_committed by partition, looked up once for each last segment: tiered
        records never change, but a later leader may have cut the segment.
        """
        lasts: dict[TopicIdPartition, _Last] = {
            partition: (view.segments[-1].segment_id, view.segments[-1].last_offset)
            for partition, view in views.items()
            if view.segments
        }
        unknown = [
            partition
            for partition, last in lasts.items()
            if self._stable_ends.get(partition, (None, 0))[0] != last
        ]
        found = self._at_once(
            unknown, lambda partition, stores: stable_end(views[partition].segments, stores)
        )
        for partition, end in found.items():
            self._stable_ends[partition] = (lasts[partition], end)
        return {
            partition: self._stable_ends[partition][1] if partition in lasts else view.bounds.latest
            for partition, view in views.items()
        }

    def first_offsets(
        self,
        times_ms: Mapping[TopicIdPartition, int],
        views: Mapping[TopicIdPartition, PartitionView],
    ) -> dict[TopicIdPartition, int | None]:
        """The first offset of each partition at or after its time; None if all are older."""

        def look_up(partition: TopicIdPartition, stores: OpenStores) -> int | None:
            view = views[partition]
            slices = (
                SegmentSlice(one, one.first_offset, min(one.last_offset, view.bounds.latest - 1))
                for one in view.segments
                if one.first_offset < view.bounds.latest
            )
            return first_at_or_after(slices, times_ms[partition], stores, self.settings)

        return self._at_once(times_ms, look_up)

    def _at_once(
        self,
        partitions: Collection[TopicIdPartition],
        look_up: Callable[[TopicIdPartition, OpenStores], Value],
    ) -> dict[TopicIdPartition, Value]:
        """Runs the look-ups in threads; closes the stores after all ended, even if one fails."""
        if not partitions:
            return {}
        configs = self.catalogue.stores
        connections = [each.connections_max for each in configs.values() if each.kind == "s3"]
        threads = min(LOOK_UPS_AT_ONCE, len(partitions), *connections)
        with (
            OpenStores(configs, self.settings.aiven_keys, readers=threads) as stores,
            ThreadPoolExecutor(threads, thread_name_prefix="strandline-plan") as pool,
        ):
            found = pool.map(look_up, partitions, repeat(stores))
            return dict(zip(partitions, found, strict=True))


def _decided(view: PartitionView, stable_end: int) -> PartitionView:
    """The view for read_committed. `stable_end`: the first offset of an open transaction, or the
    end of the last segment, after which offsets may be lost: these block no reader.
    """
    earliest, latest = view.bounds.earliest, view.bounds.latest
    if view.segments and stable_end <= view.segments[-1].last_offset:
        # A transaction that began below the first offset leaves nothing to read, and loses nothing.
        latest = max(earliest, min(latest, stable_end))
    return replace(view, bounds=replace(view.bounds, latest=latest))
