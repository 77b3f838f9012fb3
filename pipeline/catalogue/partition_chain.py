"""Chooses, from a partition's segments in a bucket, the ranges that readers get. Pure.

The lineage is resolved from the segments' own epochs; the rest is decided as on a node: coverage by
epoch, cut where each epoch ends in the lineage.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from rlm.format.custom_metadata import CustomMetadata
from rlmm.rows.coverage import coverage_of, epoch_ranges
from rlmm.rows.resolved_lineage import resolve_lineage
from rlmm.rows.served_ranges import served_ranges
from rlmm.rows.values import Covered, Interval
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment whose objects are complete. `store` and, if known, `objects` count, not the row's
    custom metadata, which may give the store a different name.
    """

    row: RemoteLogSegmentMetadata
    store: str
    objects: CustomMetadata | None


@dataclass(frozen=True, slots=True)
class PartitionChain:
    """`segments` ascend and are disjoint. The segments `in_doubt` contradict others and may hold
    records that the log never kept; no reader gets them. `bounds` begin with these, too, so that
    their offsets count as lost, not as never written, but end with the last served one; None
    without any segment.
    """

    segments: tuple[TieredSegment, ...]
    in_doubt: frozenset[Uuid]
    bounds: PartitionBounds | None


def partition_chain(found: Iterable[FoundSegment]) -> PartitionChain:
    """The chain of one partition; of equal ranges copied twice, the later copy."""
    by_id = {each.row.segment_id.id: each for each in found}
    in_order = sorted(by_id.values(), key=_start_offset)
    if _follow_one_another(in_order):
        whole = (_tiered(each, each.row.start_offset, each.row.end_offset) for each in in_order)
        return _chain(tuple(whole), [])
    ordered = sorted(in_order, key=_copied)
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
    return _chain(segments, [by_id[id_].row for id_ in lineage.in_doubt])


def _chain(
    segments: tuple[TieredSegment, ...], doubtful: Collection[RemoteLogSegmentMetadata]
) -> PartitionChain:
    return PartitionChain(
        segments,
        frozenset(one.segment_id.id for one in doubtful),
        _bounds(segments, doubtful) if segments or doubtful else None,
    )


def _bounds(
    segments: tuple[TieredSegment, ...], doubtful: Collection[RemoteLogSegmentMetadata]
) -> PartitionBounds:
    earliest = min(
        *(each.first_offset for each in segments[:1]), *(one.start_offset for one in doubtful),
        OFFSET_MAX,
    )  # fmt: skip
    latest = segments[-1].last_offset + 1 if segments else earliest
    in_doubt_to = max((one.end_offset + 1 for one in doubtful), default=0)
    return PartitionBounds(earliest, latest, in_doubt_to if in_doubt_to > latest else 0)


def _start_offset(found: FoundSegment) -> int:
    return found.row.start_offset


def _follow_one_another(in_order: Iterable[FoundSegment]) -> bool:
    """True if no offset is in two segments and epochs never descend, as is nearly always the case.
    Then each segment serves all its offsets.
    """
    last_offset, last_epoch = -1, -1
    for each in in_order:
        row = each.row
        epochs = row.leader_epochs
        epoch, start = epochs[0]
        if not last_offset < start == row.start_offset <= row.end_offset <= OFFSET_MAX:
            return False
        if epoch < last_epoch:
            return False
        for later, later_start in epochs[1:]:
            if not (epoch < later and start < later_start <= row.end_offset):
                return False
            epoch, start = later, later_start
        last_offset, last_epoch = row.end_offset, epoch
    return True


def _copied(found: FoundSegment) -> tuple[int, int, Uuid]:
    row = found.row
    return row.event_timestamp_ms, row.start_offset, row.segment_id.id


def _tiered(found: FoundSegment, first_offset: int, last_offset: int) -> TieredSegment:
    row = found.row
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
        objects=found.objects,
    )


def newest_topic(latest_copy_ms: Mapping[Uuid, int]) -> Uuid:
    """The id of the topic copied last, from the latest copy of each topic with the same name."""
    return max(latest_copy_ms, key=lambda id_: (latest_copy_ms[id_], id_))
