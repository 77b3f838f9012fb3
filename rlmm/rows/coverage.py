"""Coverage: the COPY_SEGMENT_FINISHED segment that serves each offset of an epoch.

Per (partition, epoch) two kinds of rows are kept. Intervals: the offsets that each finished segment
has in that epoch. Coverage: disjoint ranges, each naming the one segment that serves it. Where
segments overlap, the one with the highest end serves, then the one finished later. (In Kafka's own
cache the higher start serves, so that a short segment hides the rest of a longer one.)

Invariant: the coverage of an offset is the best of the intervals that contain it, and a segment's
coverage in an epoch is one range. An update touches only rows that overlap the segment's own range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.lineage import changed_ranges, epoch_bounds
from rlmm.partition_state import LostOffsets
from rlmm.rows import keys, values
from rlmm.rows.rows import OverlayRows, RowReader, first_row, last_row, prefix_end
from rlmm.rows.values import Covered, Interval
from rlmm.segment import RemoteLogSegmentMetadata

Range = tuple[int, int]
"""The first and last offset, both inclusive."""


class EpochRange(NamedTuple):
    """Offsets [`start`, `end`] of a segment, inclusive, that belong to `epoch`."""

    epoch: int
    start: int
    end: int


def epoch_ranges(segment: RemoteLogSegmentMetadata) -> tuple[EpochRange, ...]:
    """The ranges of a segment by epoch; epochs without an offset are left out."""
    if len(segment.leader_epochs) == 1:
        ((epoch, start),) = segment.leader_epochs
        only = EpochRange(epoch, max(start, segment.start_offset), segment.end_offset)
        return (only,) if only.start <= only.end else ()
    starts = [start for _, start in segment.leader_epochs[1:]]
    ends = [*(start - 1 for start in starts), segment.end_offset]
    ranges = (
        EpochRange(epoch, max(start, segment.start_offset), min(end, segment.end_offset))
        for (epoch, start), end in zip(segment.leader_epochs, ends, strict=True)
    )
    return tuple(each for each in ranges if each.start <= each.end)


def ranges_in_lineage(lineage: Epochs, ranges: Iterable[EpochRange]) -> list[Range]:
    """The parts of a segment's ranges that are within their epochs' bounds in the lineage."""
    served: list[Range] = []
    for epoch, start, end in ranges:
        bounds = epoch_bounds(lineage, epoch)
        if bounds is not None and (low := max(start, bounds[0])) <= (high := min(end, bounds[1])):
            served.append((low, high))
    return served


def cover(rows: OverlayRows, segment: RemoteLogSegmentMetadata) -> None:
    """Add a segment that became COPY_SEGMENT_FINISHED at `segment.finished_at`."""
    for epoch, interval in _put_intervals(rows, segment):
        _serve(rows, segment.segment_id.partition, epoch, interval)


def cover_all(rows: OverlayRows, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """`cover` for all segments of a partition without coverage, much faster."""
    intervals: dict[int, list[Interval]] = {}
    for segment in segments:
        for epoch, interval in _put_intervals(rows, segment):
            intervals.setdefault(epoch, []).append(interval)
    for epoch, of_epoch in intervals.items():
        prefix = keys.coverage_prefix(segments[0].segment_id.partition, epoch)
        for covered in coverage_of(of_epoch):
            _put(rows, prefix, covered)


def cover_many(rows: OverlayRows, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """`cover` for several segments of a partition, faster in each epoch that has no coverage at or
    above the lowest of them.
    """
    intervals: dict[int, list[Interval]] = {}
    for segment in segments:
        for epoch, interval in _put_intervals(rows, segment):
            intervals.setdefault(epoch, []).append(interval)
    for epoch, of_epoch in intervals.items():
        partition = segments[0].segment_id.partition
        prefix = keys.coverage_prefix(partition, epoch)
        highest = last_row(rows, prefix, prefix_end(prefix))
        if highest is None or _decode(highest).end < min(each.start for each in of_epoch):
            for covered in coverage_of(of_epoch):
                _put(rows, prefix, covered)
        else:
            for interval in of_epoch:
                _serve(rows, partition, epoch, interval)


def _put_intervals(
    rows: OverlayRows, segment: RemoteLogSegmentMetadata
) -> list[tuple[int, Interval]]:
    """Write the segment's intervals; returns (epoch, interval) of each."""
    partition, id_ = segment.segment_id.partition, segment.segment_id.id
    found = []
    for index, (epoch, start, end) in enumerate(epoch_ranges(segment)):
        interval = Interval(start, end, segment.finished_at, id_, lowest_epoch=index == 0)
        rows.put(
            keys.interval_key(partition, epoch, start, end, id_), values.encode_interval(interval)
        )
        found.append((epoch, interval))
    return found


def _serve(rows: OverlayRows, partition: TopicIdPartition, epoch: int, interval: Interval) -> None:
    """Let the interval serve each offset at which it is better than the present coverage."""
    prefix = keys.coverage_prefix(partition, epoch)
    free = [(interval.start, interval.end)]
    # Nearly always no range overlaps: one look-up from above instead of a search from below.
    highest = last_row(rows, prefix, keys.coverage_from(prefix, interval.end + 1))
    overlaps = highest is not None and _decode(highest).end >= interval.start
    over = covered_ranges(rows, partition, epoch, interval.start, interval.end) if overlaps else ()
    for covered in list(over):
        if _rank_of_covered(covered) > _rank(interval):
            free = without(free, (covered.start, covered.end))
            continue
        rows.delete(keys.coverage_from(prefix, covered.start))
        for start, end in without([(covered.start, covered.end)], interval[:2]):
            _put(rows, prefix, covered._replace(start=start, end=end))
    for start, end in free:
        _put(rows, prefix, _covered_by(interval, start, end))


def coverage_of(intervals: Iterable[Interval]) -> list[Covered]:
    """The coverage that these intervals of one epoch give, ascending: the rows that `cover` keeps,
    computed at once. The highest end serves, so the present range is best until its end, or until a
    better one begins.
    """
    ranges: list[Covered] = []
    serving: Interval | None = None
    start = 0
    for interval in sorted(intervals):
        if serving is not None and interval.start <= serving.end:
            if _rank(interval) < _rank(serving):
                continue
            if start < interval.start:
                ranges.append(_covered_by(serving, start, interval.start - 1))
        elif serving is not None:
            ranges.append(_covered_by(serving, start, serving.end))
        serving, start = interval, interval.start
    if serving is not None:
        ranges.append(_covered_by(serving, start, serving.end))
    return ranges


def uncover(rows: OverlayRows, segment: RemoteLogSegmentMetadata) -> list[EpochRange]:
    """Remove a segment that leaves COPY_SEGMENT_FINISHED; the best of the others serve its ranges.
    Returns the ranges that no other segment can serve.
    """
    partition, id_ = segment.segment_id.partition, segment.segment_id.id
    unserved: list[EpochRange] = []
    for epoch, start, end in epoch_ranges(segment):
        rows.delete(keys.interval_key(partition, epoch, start, end, id_))
        prefix = keys.coverage_prefix(partition, epoch)
        freed = [
            covered
            for covered in covered_ranges(rows, partition, epoch, start, end)
            if covered.segment == id_
        ]
        for covered in freed:
            rows.delete(keys.coverage_from(prefix, covered.start))
            rest = _refill(rows, partition, epoch, (covered.start, covered.end))
            unserved += (EpochRange(epoch, *range_) for range_ in rest)
    return unserved


def _refill(
    rows: OverlayRows, partition: TopicIdPartition, epoch: int, freed: Range
) -> list[Range]:
    prefix = keys.coverage_prefix(partition, epoch)
    others = sorted(intervals_over(rows, partition, epoch, *freed), key=_rank, reverse=True)
    free = [freed]
    for interval in others:
        left = without(free, interval[:2])
        for start, end in without(free, *left):
            _put_joined(rows, prefix, _covered_by(interval, start, end))
        free = left
        if not free:
            break
    return free


def _rank(interval: Interval) -> tuple[int, int, Uuid]:
    return interval.end, interval.finished_at, interval.segment


def _rank_of_covered(covered: Covered) -> tuple[int, int, Uuid]:
    return covered.reach, covered.finished_at, covered.segment


def _covered_by(interval: Interval, start: int, end: int) -> Covered:
    return Covered(start, end, interval.end, interval.finished_at, interval.segment)


def _put(rows: OverlayRows, prefix: bytes, covered: Covered) -> None:
    rows.put(keys.coverage_from(prefix, covered.start), values.encode_covered(covered))


def _put_joined(rows: OverlayRows, prefix: bytes, covered: Covered) -> None:
    """Write a range, merged with its neighbours of the same segment."""
    below = last_row(rows, prefix, keys.coverage_from(prefix, covered.start))
    if below is not None:
        left = _decode(below)
        if left.segment == covered.segment and left.end + 1 == covered.start:
            covered = covered._replace(start=left.start)
    key = keys.coverage_from(prefix, covered.end + 1)
    value = rows.get(key)
    if value is not None:
        right = values.decode_covered(covered.end + 1, value)
        if right.segment == covered.segment:
            rows.delete(key)
            covered = covered._replace(end=right.end)
    _put(rows, prefix, covered)


def without(ranges: list[Range], *taken: Range) -> list[Range]:
    """`ranges` without the offsets of `taken`, in order."""
    for low, high in taken:
        kept: list[Range] = []
        for start, end in ranges:
            if high < start or end < low:
                kept.append((start, end))
                continue
            if start < low:
                kept.append((start, low - 1))
            if high < end:
                kept.append((high + 1, end))
        ranges = kept
    return ranges


def offsets_taken_out(
    before: Epochs, after: Epochs, start: int, end: int, lost: Iterable[LostOffsets]
) -> int:
    """The number of offsets in [`start`, `end`] whose epoch in `after` is a different one than in
    `before`, not counting the `lost` ones, which no segment serves.
    """
    ranges = changed_ranges(before, after, start, end)
    left = without(ranges, *((each.start, each.end) for each in lost))
    return sum(high - low + 1 for low, high in left)


def _decode(row: tuple[bytes, bytes]) -> Covered:
    return values.decode_covered(keys.start_of_coverage_key(row[0]), row[1])


def covered_ranges(
    rows: RowReader, partition: TopicIdPartition, epoch: int, start: int, end: int
) -> Iterator[Covered]:
    """The coverage that overlaps [`start`, `end`]: whole ranges, ascending."""
    prefix = keys.coverage_prefix(partition, epoch)
    below = last_row(rows, prefix, keys.coverage_from(prefix, start))
    if below is not None and (covered := _decode(below)).end >= start:
        yield covered
    above = rows.scan(keys.coverage_from(prefix, start), keys.coverage_from(prefix, end + 1))
    yield from map(_decode, above)


def covering(
    rows: RowReader, partition: TopicIdPartition, epoch: int, offset: int
) -> Covered | None:
    """The range that contains `offset`; None if there is none. One seek."""
    prefix = keys.coverage_prefix(partition, epoch)
    row = last_row(rows, prefix, keys.coverage_from(prefix, offset + 1))
    if row is None or (covered := _decode(row)).end < offset:
        return None
    return covered


def intervals_over(
    rows: RowReader, partition: TopicIdPartition, epoch: int, start: int, end: int
) -> Iterator[Interval]:
    """The finished segments' intervals that overlap [`start`, `end`], in no useful order.

    Intervals are stored by span class, so that one long segment does not widen the search among
    short ones: of each class, only rows that begin less than its longest span too early are read.
    """
    prefix = keys.interval_prefix(partition, epoch)
    class_ = 0
    while (row := first_row(rows, prefix + bytes((class_,)), prefix_end(prefix))) is not None:
        class_ = keys.fields_of_interval_key(row[0])[1]
        lowest = max(0, start - (2 << class_) + 1)
        low = keys.interval_from(prefix, class_, lowest)
        for key, value in rows.scan(low, keys.interval_from(prefix, class_, end + 1)):
            _, _, begin, segment = keys.fields_of_interval_key(key)
            interval = values.decode_interval(begin, segment, value)
            if interval.end >= start:
                yield interval
        class_ += 1


def uncovered_ranges(
    rows: RowReader, partition: TopicIdPartition, lineage: Epochs, start: int, end: int
) -> list[Range]:
    """The ranges of [`start`, `end`] that no segment in the lineage serves, ascending, never
    adjacent. The lineage's first epoch has no lower bound, as in look-ups.
    """
    holes: list[Range] = []
    for index, entry in enumerate(lineage):
        following = lineage[index + 1].start_offset if index + 1 < len(lineage) else end + 1
        low = max(start, entry.start_offset) if index else start
        high = min(end, following - 1)
        if low > high:
            continue
        free, at = [], low
        for covered in covered_ranges(rows, partition, entry.epoch, low, high):
            if covered.start > at:
                free.append((at, covered.start - 1))
            at = covered.end + 1
        if at <= high:
            free.append((at, high))
        if free and holes and holes[-1][1] + 1 == free[0][0]:
            free[0] = (holes.pop()[0], free[0][1])
        holes += free
    return holes
