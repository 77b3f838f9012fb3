"""Which slices a run exports, in which tasks, in which commits. Pure.

What has been exported is a set of offsets a partition. A run takes what lies in its range and not
in that set: without a range from the end of the set on, so that the next run goes on where the last
commit ended; with one whatever of it is missing, so that an overlap is never exported twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.export.offset_ranges import Ranges, end, overlap, united, without
from pipeline.read.segment_slice import SegmentSlice, cut, plan_slices
from rlm.read_request import Isolation
from rlmm.segment import OFFSET_MAX


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a run was asked for of each partition, inclusive; None: the run decides."""

    first: int | None = None
    last: int | None = None

    def of(self, taken: Ranges, latest: int) -> tuple[int, int]:
        """First and last offset for a partition of which `taken` is exported and which can be
        read below `latest`. Empty (last before first) if there is nothing.
        """
        first = end(taken) if self.first is None else self.first
        last = OFFSET_MAX if self.last is None else self.last
        return first, min(last, latest - 1)


@dataclass(frozen=True, slots=True)
class ExportTask:
    """What one task writes; `number` counts through a whole run."""

    number: int
    slices: tuple[SegmentSlice, ...]

    @property
    def log_bytes(self) -> int:
        """About how much it reads, before decompression."""
        return sum(slice_bytes(each) for each in self.slices)


def missing_slices(
    segments: Sequence[TieredSegment], taken: Ranges, bounds: tuple[int, int], isolation: Isolation
) -> list[SegmentSlice]:
    """What of `bounds` (inclusive) is tiered and not `taken`, ascending. `segments` go to the
    partition's end: see `plan_slices`.
    """
    first, last = bounds
    if first > last:
        return []
    return [
        cut(part, *piece)
        for part in plan_slices(segments, first, last, isolation)
        for piece in without([(part.first_offset, part.last_offset)], taken)
    ]


def holes(slices: Iterable[SegmentSlice], taken: Ranges, bounds: tuple[int, int]) -> Ranges:
    """Offsets between the first and the last of what is exported and planned that no segment has:
    lost, or never tiered. They count as not exported, so that a later backfill may fill them.
    """
    there = united(taken, ((each.first_offset, each.last_offset) for each in slices))
    inside = overlap(there, (bounds,)) if bounds[0] <= bounds[1] else ()
    if not inside:
        return ()
    goes_on = any(last + 1 == bounds[0] for _, last in taken)
    return without([(bounds[0] if goes_on else inside[0][0], inside[-1][1])], there)


def slice_bytes(part: SegmentSlice) -> int:
    """The share of the segment's bytes, as if all its records were of one size."""
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
    """The tasks of each commit, about `commit_bytes` of log together, so that a run that is killed
    loses no more than that.
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
    """By partition what the tasks take: that is what their commit says."""
    found: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        for part in task.slices:
            ranges = found.setdefault(str(part.segment.partition), [])
            ranges.append((part.first_offset, part.last_offset))
    return {name: united(ranges) for name, ranges in found.items()}
