"""Plans the slices of a run of an export, its tasks and its commits. Pure.

The exported offsets of a partition are a set. A run exports the offsets of its range that are not
in the set. Without a range it starts at the end of the set, so that it continues where the last
commit ended; with a range it exports what is missing there, so that no offset is exported twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.export.offset_ranges import Ranges, end, overlap, united, without
from pipeline.read.segment_slice import SegmentSlice, cut, plan_slices
from rlm.data_plane.read_request import Isolation
from rlmm.segment import OFFSET_MAX


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The requested offsets in each partition, inclusive; None: the run decides."""

    first: int | None = None
    last: int | None = None

    def of(self, taken: Ranges, latest: int) -> tuple[int, int]:
        """First and last offset for a partition with `taken` exported and offsets below `latest`
        readable. The last is before the first if nothing is left to export.
        """
        first = end(taken) if self.first is None else self.first
        last = OFFSET_MAX if self.last is None else self.last
        return first, min(last, latest - 1)


@dataclass(frozen=True, slots=True)
class ExportTask:
    """The slices that one task writes; `number` counts through a whole run."""

    number: int
    slices: tuple[SegmentSlice, ...]

    @property
    def log_bytes(self) -> int:
        """Approximate bytes that it reads, before decompression."""
        return sum(slice_bytes(each) for each in self.slices)


def missing_slices(
    segments: Sequence[TieredSegment], taken: Ranges, bounds: tuple[int, int], isolation: Isolation
) -> list[SegmentSlice]:
    """The tiered offsets within `bounds` (inclusive) that are not `taken`, ascending. `segments` go
    to the partition's end: see `plan_slices`.
    """
    first, last = bounds
    if first > last:
        return []
    return [
        cut(part, *piece)
        for part in plan_slices(segments, first, last, isolation)
        for piece in without([(part.first_offset, part.last_offset)], taken)
    ]


def holes(
    slices: Iterable[SegmentSlice], taken: Ranges, bounds: tuple[int, int], earliest: int
) -> Ranges:
    """Offsets of `bounds` in no segment: lost, or never tiered. They begin at the tier's `earliest`
    or at the first exported one, and count as not exported, so that a later backfill may fill them.
    """
    if bounds[0] > bounds[1]:
        return ()
    there = united(taken, ((each.first_offset, each.last_offset) for each in slices))
    inside = overlap(there, (bounds,))
    goes_on = any(last + 1 == bounds[0] for _, last in taken)
    first = bounds[0] if goes_on else max(bounds[0], min([earliest, *(at for at, _ in inside[:1])]))
    return without([(first, bounds[1])], there) if first <= bounds[1] else ()


def slice_bytes(part: SegmentSlice) -> int:
    """The slice's share of the segment's bytes, as if all records had the same size."""
    segment = part.segment
    offsets = segment.end_offset - segment.start_offset + 1
    return max(1, segment.log_bytes * (part.last_offset - part.first_offset + 1) // offsets)


def packed(slices: Iterable[SegmentSlice], task_bytes: int) -> Iterator[ExportTask]:
    """Tasks of about `task_bytes`: a segment is never split, small ones share a task."""
    number, waiting, waiting_bytes = 0, list[SegmentSlice](), 0
    for part in slices:
        size = slice_bytes(part)
        if waiting and waiting_bytes + size > task_bytes:
            yield ExportTask(number, tuple(waiting))
            number, waiting, waiting_bytes = number + 1, [], 0
        waiting.append(part)
        waiting_bytes += size
    if waiting:
        yield ExportTask(number, tuple(waiting))


def commits(tasks: Iterable[ExportTask], commit_bytes: int) -> Iterator[list[ExportTask]]:
    """The tasks of each commit, together about `commit_bytes` of log, so that a killed run loses no
    more than that.
    """
    waiting, waiting_bytes = list[ExportTask](), 0
    for task in tasks:
        if waiting and waiting_bytes + task.log_bytes > commit_bytes:
            yield waiting
            waiting, waiting_bytes = [], 0
        waiting.append(task)
        waiting_bytes += task.log_bytes
    if waiting:
        yield waiting


def offsets_of(tasks: Iterable[ExportTask]) -> dict[str, Ranges]:
    """The offsets of the tasks by partition, as their commit records them."""
    found: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        for part in task.slices:
            ranges = found.setdefault(str(part.segment.partition), [])
            ranges.append((part.first_offset, part.last_offset))
    return {name: united(ranges) for name, ranges in found.items()}
