"""From the segments that a bucket has of a partition to those that readers get. Pure.

The lineage is made of what the segments say of it, and the rest is decided as a node decides it:
coverage by epoch, cut where each epoch ends in the lineage.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.rebuild.resolved_lineage import resolve_lineage
from rlm.custom_metadata import CustomMetadata
from rlmm.coverage import coverage_of, epoch_ranges
from rlmm.row_values import Covered, Interval
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata
from rlmm.served_ranges import served_ranges


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment whose objects are whole. The row's custom metadata is ours, or None."""

    row: RemoteLogSegmentMetadata
    store: str


@dataclass(frozen=True, slots=True)
class PartitionChain:
    """`segments` ascend and are disjoint. Those of `in_doubt` may hold what the log never kept, as
    the segments contradict each other; no reader gets them.
    """

    segments: tuple[TieredSegment, ...]
    in_doubt: frozenset[Uuid]


def partition_chain(found: Iterable[FoundSegment]) -> PartitionChain:
    """The chain of one partition; of those copied twice in equal parts the one copied later."""
    by_id = {each.row.segment_id.id: each for each in found}
    ordered = sorted(by_id.values(), key=_copied)
    lineage = resolve_lineage([each.row for each in ordered])
    intervals: defaultdict[int, list[Interval]] = defaultdict(list)
    for number, each in enumerate(ordered):
        id_ = each.row.segment_id.id
        if id_ in lineage.in_doubt:
            continue
        for epoch, start, end in epoch_ranges(each.row):
            intervals[epoch].append(Interval(start, end, number, id_, lowest_epoch=False))
    coverage = {epoch: coverage_of(of_epoch) for epoch, of_epoch in intervals.items()}

    def covered(epoch: int, first: int, last: int) -> Iterable[Covered]:
        ranges = coverage.get(epoch, [])
        at = bisect_left(ranges, first, key=lambda each: each.end)
        while at < len(ranges) and ranges[at].start <= last:
            yield ranges[at]
            at += 1

    segments = tuple(
        _tiered(by_id[served.segment], served.first_offset, served.last_offset)
        for served in served_ranges(lineage.epochs, covered, 0, OFFSET_MAX)
    )
    return PartitionChain(segments, lineage.in_doubt)


def _copied(found: FoundSegment) -> tuple[int, int, Uuid]:
    row = found.row
    return row.event_timestamp_ms, row.start_offset, row.segment_id.id


def _tiered(found: FoundSegment, first_offset: int, last_offset: int) -> TieredSegment:
    row = found.row
    custom = row.custom_metadata
    return TieredSegment(
        segment_id=row.segment_id,
        store=found.store,
        start_offset=row.start_offset,
        end_offset=row.end_offset,
        first_offset=first_offset,
        last_offset=last_offset,
        max_timestamp_ms=row.max_timestamp_ms,
        log_bytes=row.size_bytes,
        txn_index_empty=row.txn_index_empty,
        leader_epochs=tuple(EpochEntry(*each) for each in row.leader_epochs),
        objects=None if custom is None else CustomMetadata.decode(custom),
    )


def newest_topic(latest_copy_ms: Mapping[Uuid, int]) -> Uuid:
    """Of the ids of topics with one name, each with the time of its latest copy, the newest's."""
    return max(latest_copy_ms, key=lambda id_: (latest_copy_ms[id_], id_))
