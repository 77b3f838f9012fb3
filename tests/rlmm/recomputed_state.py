"""What the upkept rows should hold, computed anew from the segment rows in the most obvious way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.rows import keys, queries
from rlmm.rows.keys import RowKind
from rlmm.rows.reads import decode_segment_row, read_partition_row, read_totals
from rlmm.rows.rows import MemoryRows, prefix_end
from rlmm.rows.values import Covered, Interval, encode_covered, encode_interval
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
Rows = list[tuple[bytes, bytes]]


def number_of(segment: RemoteLogSegmentMetadata) -> int:
    return int.from_bytes(segment.segment_id.id, "big")


def rows_of(rows: MemoryRows, kind: RowKind) -> Rows:
    prefix = bytes((kind,))
    return list(rows.scan(prefix, prefix_end(prefix)))


def all_segments(rows: MemoryRows) -> list[RemoteLogSegmentMetadata]:
    return [decode_segment_row(value) for _, value in rows_of(rows, RowKind.SEGMENT)]


def parts(segment: RemoteLogSegmentMetadata) -> list[tuple[int, int, int]]:
    """(epoch, first, last) of what a segment holds."""
    found = []
    for index, (epoch, start) in enumerate(segment.leader_epochs):
        following = [each[1] for each in segment.leader_epochs[index + 1 :]]
        end = following[0] - 1 if following else segment.end_offset
        found.append((epoch, max(start, segment.start_offset), end))
    return [each for each in found if each[1] <= each[2]]


def best_by_offset(finished: list[RemoteLogSegmentMetadata]) -> dict[tuple[int, int], Uuid]:
    """Who serves (epoch, offset): who reaches furthest in the epoch, then the later finished."""
    best: dict[tuple[int, int], tuple[int, int, Uuid]] = {}
    for segment in finished:
        for epoch, start, end in parts(segment):
            rank = (end, segment.finished_at, segment.segment_id.id)
            for offset in range(start, end + 1):
                best[epoch, offset] = max(best.get((epoch, offset), rank), rank)
    return {place: rank[2] for place, rank in best.items()}


def coverage_rows(rows: MemoryRows) -> Rows:
    return rows_of(rows, RowKind.INTERVAL) + rows_of(rows, RowKind.COVERAGE)


def expected_coverage_rows(rows: MemoryRows) -> Rows:
    by_partition: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = {}
    for segment in all_segments(rows):
        if segment.state is COPY_FINISHED:
            by_partition.setdefault(segment.segment_id.partition, []).append(segment)
    found: Rows = []
    for partition, finished in by_partition.items():
        for segment in finished:
            found += _interval_rows(partition, segment)
        found += _coverage_rows(partition, finished)
    return sorted(found)


def _interval_rows(partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Rows:
    id_ = segment.segment_id.id
    return [
        (
            keys.interval_key(partition, epoch, start, end, id_),
            encode_interval(Interval(start, end, segment.finished_at, id_, index == 0)),
        )
        for index, (epoch, start, end) in enumerate(parts(segment))
    ]


def _coverage_rows(
    partition: TopicIdPartition, finished: list[RemoteLogSegmentMetadata]
) -> Iterator[tuple[bytes, bytes]]:
    ends = {
        (epoch, segment.segment_id.id): (end, segment.finished_at)
        for segment in finished
        for epoch, _, end in parts(segment)
    }
    best = best_by_offset(finished)
    for (epoch, offset), id_ in best.items():
        if best.get((epoch, offset - 1)) == id_:
            continue
        end = offset
        while best.get((epoch, end + 1)) == id_:
            end += 1
        covered = Covered(offset, end, *ends[epoch, id_], id_)
        key = keys.coverage_from(keys.coverage_prefix(partition, epoch), offset)
        yield key, encode_covered(covered)


Counts = dict[TopicIdPartition | None, tuple[int, ...]]


def recounted(rows: MemoryRows) -> Counts:
    """What `kept_counts` should give."""
    found: Counts = {}
    segments = all_segments(rows)
    partitions = list(queries.partitions(rows))
    for partition in partitions:
        mine = [each for each in segments if each.segment_id.partition == partition]
        found[partition] = _counts(mine)
    found[None] = (*_counts(segments), len(partitions))
    return found


def _counts(segments: list[RemoteLogSegmentMetadata]) -> tuple[int, ...]:
    states = Counter(each.state for each in segments)
    return (
        states[SegmentState.COPY_SEGMENT_STARTED],
        states[COPY_FINISHED],
        states[SegmentState.DELETE_SEGMENT_STARTED],
        sum(each.size_bytes for each in segments if each.state is COPY_FINISHED),
    )


def kept_counts(rows: MemoryRows) -> Counts:
    """The counters of every partition, and under None the totals."""
    found: Counts = {}
    for partition in queries.partitions(rows):
        row = read_partition_row(rows, partition)
        assert row is not None
        found[partition] = (
            row.copy_started,
            row.copy_finished,
            row.delete_started,
            row.size_bytes,
        )
    total = read_totals(rows)
    found[None] = (
        total.copy_started,
        total.copy_finished,
        total.delete_started,
        total.size_bytes,
        total.partitions,
    )
    return found
