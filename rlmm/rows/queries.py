"""Queries of the rows. Pure reads; every answer is valid at the rows' own metadata offset.

Look-ups clamp to the merged lineage: a part of a segment that a later leader's lineage cut off is
never returned, and `valid_until` is the offset where reading has to stop.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafka_formats.errors import InternalError
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.lineage import epoch_bounds
from rlmm.partition_state import PartitionState, TopicPolicy
from rlmm.rows import keys, values
from rlmm.rows.coverage import covered_ranges, covering, epoch_ranges
from rlmm.rows.expiry import find_expiry
from rlmm.rows.nodes import is_voided
from rlmm.rows.reads import (
    highest_copied,
    highest_recorded,
    is_adopting,
    next_offset,
    read_lineage,
    read_lost_ranges,
    read_partition_row,
    read_policy,
    read_segment,
)
from rlmm.rows.rows import RowReader, first_row, prefix_end
from rlmm.rows.served_ranges import ServedRange, served_ranges
from rlmm.rows.values import Covered
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """The segment that serves an offset of an epoch.

    `valid_until` is the last offset (inclusive) for which the answer is valid: a reader stops at
    the last batch at or below it and asks again, with the epoch of the offset after it.
    """

    metadata: RemoteLogSegmentMetadata
    valid_until: int


def segment_for_offset(
    rows: RowReader, partition: TopicIdPartition, leader_epoch: int, offset: int
) -> SegmentAnswer | None:
    """The COPY_SEGMENT_FINISHED segment that serves `offset` within `leader_epoch`, or None."""
    if offset < 0 or leader_epoch < 0:
        return None
    bounds = epoch_bounds(read_lineage(rows, partition), leader_epoch)
    if bounds is None or not bounds[0] <= offset <= bounds[1]:
        return None
    covered = covering(rows, partition, leader_epoch, offset)
    return None if covered is None else _answer(rows, covered, bounds[1])


def _answer(rows: RowReader, covered: Covered, last: int) -> SegmentAnswer:
    """The answer for a covered range; `last` is the last offset of its epoch in the lineage."""
    metadata = read_segment(rows, covered.segment)
    if metadata is None:
        raise InternalError(f"coverage names segment {covered.segment}, which has no row")
    return SegmentAnswer(metadata, min(covered.end, last))


ServedSegment = tuple[ServedRange, RemoteLogSegmentMetadata]


def served_segments(
    rows: RowReader, state: PartitionState, first_offset: int, last_offset: int
) -> Iterator[ServedSegment]:
    """The segments that serve the partition's readable offsets from the first to the last,
    inclusive, ascending. Rows may change between two steps: for a segment deleted since the
    coverage was read, the segments that serve its offsets then are returned.
    """
    if state.highest_copied is None:
        return
    following, end = max(first_offset, state.log_start_offset, 0), state.highest_copied[0]
    gone: Uuid | None = None
    while True:
        for served in _covered_now(rows, state, following, min(last_offset, end)):
            metadata = read_segment(rows, served.segment)
            if metadata is None or metadata.state is not SegmentState.COPY_SEGMENT_FINISHED:
                if served.segment == gone:
                    raise InternalError(f"coverage names segment {gone}, which is not finished")
                following, gone = served.first_offset, served.segment
                break
            yield served, metadata
        else:
            return


def _covered_now(
    rows: RowReader, state: PartitionState, first_offset: int, last_offset: int
) -> Iterator[ServedRange]:
    covered = partial(covered_ranges, rows, state.partition)
    return served_ranges(state.lineage, covered, first_offset, last_offset)


def serves_any(
    rows: RowReader, partition: TopicIdPartition, lineage: Epochs, first: int, last: int
) -> bool:
    """True if a finished segment serves an offset from `first` to `last` (inclusive), within the
    given lineage. One seek per epoch.
    """
    covered = partial(covered_ranges, rows, partition)
    return next(served_ranges(lineage, covered, first, last), None) is not None


def next_segment_with_txn_index(
    rows: RowReader, partition: TopicIdPartition, leader_epoch: int, offset: int
) -> SegmentAnswer | None:
    """The first segment at or after `offset` in that epoch that has a transaction index.

    None if the epoch has no further one; the caller continues with the next epoch. Offsets that no
    segment serves are skipped: a later index may list an aborted transaction from before them.
    """
    if offset < 0 or leader_epoch < 0:
        return None
    bounds = epoch_bounds(read_lineage(rows, partition), leader_epoch)
    if bounds is None or offset > bounds[1]:
        return None
    first = max(offset, bounds[0])
    for covered in covered_ranges(rows, partition, leader_epoch, first, bounds[1]):
        answer = _answer(rows, covered, bounds[1])
        if not answer.metadata.txn_index_empty:
            return answer
    return None


def highest_offset_for_epoch(
    rows: RowReader, partition: TopicIdPartition, leader_epoch: int
) -> int | None:
    """The highest offset ever copied in that epoch, within the epoch's part of the lineage. None
    for an epoch outside the lineage: a follower that still has records of it would delete those
    that replace them.
    """
    if leader_epoch < 0:
        return None
    highest = highest_recorded(rows, partition, leader_epoch)
    if highest is None:
        return None
    lineage = read_lineage(rows, partition)
    bounds = epoch_bounds(lineage, leader_epoch)
    if bounds is None:
        return None if lineage else highest
    return min(highest, bounds[1])


class ListPosition(NamedTuple):
    """A segment's place in a list: the epoch it is listed under, its first offset there, its id."""

    epoch: int
    start: int
    segment: Uuid


def list_position(
    metadata: RemoteLogSegmentMetadata, leader_epoch: int | None = None
) -> ListPosition:
    """The position of a segment that `list_segments` returned for this `leader_epoch`."""
    for each in epoch_ranges(metadata):
        if leader_epoch is None or leader_epoch == each.epoch:
            return ListPosition(each.epoch, each.start, metadata.segment_id.id)
    raise InternalError(f"segment {metadata.segment_id} holds nothing of epoch {leader_epoch}")


def list_segments(
    rows: RowReader,
    partition: TopicIdPartition,
    leader_epoch: int | None = None,
    *,
    after: ListPosition | None = None,
) -> Iterator[RemoteLogSegmentMetadata]:
    """All segments that are not DELETE_SEGMENT_FINISHED, in any state.

    With an epoch: those with offsets in it, by start offset in it. Without: by their lowest epoch,
    then by start offset in that. Only those after `after`; skipping earlier ones costs nothing.
    """
    if leader_epoch is not None:
        if leader_epoch >= 0:
            unfinished = left_overs(rows, partition)
            yield from _segments_of_epoch(rows, partition, leader_epoch, unfinished, after=after)
        return
    by_lowest: dict[int, list[RemoteLogSegmentMetadata]] = {}
    for metadata in left_overs(rows, partition):
        by_lowest.setdefault(epoch_ranges(metadata)[0].epoch, []).append(metadata)
    for epoch in sorted(by_lowest.keys() | set(_epochs_with_intervals(rows, partition))):
        if after is None or epoch >= after.epoch:
            yield from _segments_of_epoch(
                rows, partition, epoch, by_lowest.get(epoch, []), after=after, lowest_only=True
            )


def left_overs(
    rows: RowReader, partition: TopicIdPartition
) -> tuple[RemoteLogSegmentMetadata, ...]:
    """Segments in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED, which a node has to finish."""
    prefix = keys.unfinished_prefix(partition)
    ids = [keys.segment_of_unfinished_key(key) for key, _ in rows.scan(prefix, prefix_end(prefix))]
    found = (read_segment(rows, id_) for id_ in ids)
    return tuple(metadata for metadata in found if metadata is not None)


def _epochs_with_intervals(rows: RowReader, partition: TopicIdPartition) -> Iterator[int]:
    """The epochs with finished segments, ascending; one seek per epoch."""
    prefix = keys.intervals_prefix(partition)
    low, end = prefix, prefix_end(prefix)
    while (row := first_row(rows, low, end)) is not None:
        epoch = keys.fields_of_interval_key(row[0])[0]
        yield epoch
        low = prefix_end(keys.interval_prefix(partition, epoch))


_Found = tuple[int, Uuid]


def _segments_of_epoch(
    rows: RowReader,
    partition: TopicIdPartition,
    epoch: int,
    unfinished: tuple[RemoteLogSegmentMetadata, ...] | list[RemoteLogSegmentMetadata],
    *,
    after: ListPosition | None,
    lowest_only: bool = False,
) -> Iterator[RemoteLogSegmentMetadata]:
    """Finished segments by their intervals, and those of `unfinished` that have the epoch."""
    behind = after[1:] if after is not None and after.epoch == epoch else None
    others = sorted(
        (each.start, metadata.segment_id.id)
        for metadata in unfinished
        for each in epoch_ranges(metadata)
        if each.epoch == epoch and (behind is None or (each.start, metadata.segment_id.id) > behind)
    )
    found = heapq.merge(
        *_finished_by_class(rows, partition, epoch, behind, lowest_only=lowest_only), iter(others)
    )
    for _, id_ in found:
        metadata = read_segment(rows, id_)
        if metadata is not None:
            yield metadata


def _finished_by_class(
    rows: RowReader,
    partition: TopicIdPartition,
    epoch: int,
    behind: _Found | None,
    *,
    lowest_only: bool,
) -> list[Iterator[_Found]]:
    """The intervals after `behind` of each span class, ascending."""
    prefix = keys.interval_prefix(partition, epoch)
    runs: list[Iterator[_Found]] = []
    class_ = 0
    while (row := first_row(rows, prefix + bytes((class_,)), prefix_end(prefix))) is not None:
        class_ = keys.fields_of_interval_key(row[0])[1]
        low = prefix + bytes((class_,))
        end = prefix_end(low)
        if behind is not None:
            low = keys.interval_from(prefix, class_, behind[0]) + behind[1] + b"\0"
        runs.append(_starts(rows.scan(low, end), lowest_only=lowest_only))
        class_ += 1
    return runs


def _starts(scan: Iterator[tuple[bytes, bytes]], *, lowest_only: bool) -> Iterator[_Found]:
    for key, value in scan:
        _, _, start, segment = keys.fields_of_interval_key(key)
        if not lowest_only or values.decode_interval(start, segment, value).lowest_epoch:
            yield start, segment


def segment(
    rows: RowReader, partition: TopicIdPartition, segment_uuid: Uuid
) -> RemoteLogSegmentMetadata | None:
    """The segment with this id, if it is of this partition."""
    found = read_segment(rows, segment_uuid)
    if found is None or found.segment_id.partition != partition:
        return None
    return found


def is_partition_tombstone(rows: RowReader, partition: TopicIdPartition) -> bool:
    """True if the partition's deletion is finished (kept for 30 days of measured time)."""
    return rows.get(keys.partition_tombstone_key(partition)) is not None


def partition_state(rows: RowReader, partition: TopicIdPartition) -> PartitionState | None:
    """The partition's state; None if no record names it, or its deletion is long finished."""
    row = read_partition_row(rows, partition)
    if row is None or row.topic != partition.topic:
        return None
    if not row.claim_voided and is_voided(rows, row.claim):
        row = row._replace(claim_voided=True)
    lineage = read_lineage(rows, partition)
    return PartitionState(
        partition=partition,
        mode=row.mode,
        claim=row.standing_claim,
        lineage=lineage,
        log_start_offset=row.log_start_offset,
        highest_copied=highest_copied(rows, partition, lineage),
        next_offset=next_offset(rows, partition, lineage, row.log_start_offset),
        lost_ranges=tuple(read_lost_ranges(rows, partition)),
        delete_state=row.delete_state,
        segment_count=row.copy_finished,
        size_bytes=row.size_bytes,
        mode_offset=row.mode_offset,
        voided_claim=row.claim if row.claim_voided else None,
        local_log_start_offset=row.local_log_start_offset,
        delete_offset=row.delete_offset,
        delete_marked_at_ms=row.delete_marked_at_ms,
        adopting=is_adopting(rows, partition),
        delete_grace_ms=row.delete_grace_ms,
        reset_stands=row.reset_stands,
        reset_cut_at=row.reset_cut_at,
        gaps_allowed=row.gaps_allowed,
        delete_counts_from_ms=row.delete_counts_from_ms,
        expiry=find_expiry(rows, partition),
    )


def partitions(rows: RowReader) -> Iterator[TopicIdPartition]:
    """All partitions, by topic name, number and topic id."""
    prefix = keys.topic_names_prefix()
    for key, _ in rows.scan(prefix, prefix_end(prefix)):
        yield keys.partition_of_topic_name_key(key)


def partitions_of_topic(rows: RowReader, topic: str) -> Iterator[TopicIdPartition]:
    """The partitions of all topics of this name, by number and topic id."""
    return (each.partition for each in met_partitions(rows, topic))


def find_partition(rows: RowReader, topic: str, partition: int) -> TopicIdPartition | None:
    """The partition of the newest topic of that name (`newest_topic_id`); None if no record has
    named that one yet, even if older topics of the name have the partition.
    """
    tip = TopicIdPartition(topic, newest_topic_id(rows, topic), partition)
    return tip if is_met(rows, tip) else None


def is_met(rows: RowReader, partition: TopicIdPartition) -> bool:
    """True if a record has named the partition."""
    return rows.get(keys.topic_name_key(partition)) is not None


class MetPartition(NamedTuple):
    """A partition; `met_at` is the metadata offset of the first record that named it."""

    partition: TopicIdPartition
    met_at: int


def met_partitions(rows: RowReader, topic: str) -> Iterator[MetPartition]:
    """The partitions of all topics of this name, by number and topic id."""
    prefix = keys.topic_name_prefix(topic)
    for key, value in rows.scan(prefix, prefix_end(prefix)):
        partition = keys.partition_of_topic_name_key(key)
        if partition.topic == topic:
            yield MetPartition(partition, values.decode_offset(value))


def newest_incarnation(met: Sequence[MetPartition]) -> list[TopicIdPartition]:
    """The partitions of the newest topic among those of one name: the one first named last."""
    first_met: dict[Uuid, int] = {}
    for partition, met_at in met:
        id_ = partition.topic_id
        first_met[id_] = min(met_at, first_met.get(id_, met_at))
    newest = max(first_met, key=first_met.__getitem__, default=None)
    return [partition for partition, _ in met if partition.topic_id == newest]


def newest_topic_id(rows: RowReader, topic: str) -> Uuid:
    """The id of the newest topic of that name; zero if none is known."""
    newest = newest_incarnation(list(met_partitions(rows, topic)))
    return newest[0].topic_id if newest else ZERO_UUID


def topic_policy(rows: RowReader, topic: str, topic_id: Uuid | None = None) -> TopicPolicy:
    """A topic name's policy, or the defaults; with `topic_id` the one in force for that topic."""
    policy = read_policy(rows, topic)
    return policy if topic_id is None else policy.counts_for(topic_id)
