"""Packs slices into Spark tasks. Pure.

A task costs tens of milliseconds before its first record, so small segments are packed together; a
segment is cut only if the query asks for more tasks, or for fewer records a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace

from kafka_formats.errors import InvalidRequest
from pipeline.read.segment_slice import SegmentSlice, cut

TASK_BYTES_MIN = 128 * 1024 * 1024
"""The least that every task but the last reads, unless the query asks for smaller ones, or its
segments are tiny.
"""

TASK_SLICES_MAX = 1_024
"""The most segments of a task: each has to be opened, which takes milliseconds, and from a store
far away tens of them. Segments of 128 KiB and more fill a task before.
"""

SLICE_OVERHEAD_BYTES = 4 * 1024 * 1024
"""Cost of opening one more segment, in bytes that could be read in that time: counted when work is
divided among as many tasks as the query asks for.
"""

TASKS_MAX = 100_000
"""The most tasks of a query: more mean a wrong option, which the driver would notice only when out
of memory.
"""

Task = tuple[SegmentSlice, ...]


def plan_tasks(
    slices: Sequence[SegmentSlice],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[Task]:
    """Tasks that hold every offset of the slices exactly once, in the slices' order.

    Each has TASK_BYTES_MIN or TASK_SLICES_MAX. At least `min_partitions` tasks if there are as many
    offsets, with at most `max_records_per_partition` offsets each. InvalidRequest for more than
    TASKS_MAX.
    """
    pieces = list(slices)
    if min_partitions is not None and min_partitions > TASKS_MAX:
        raise InvalidRequest(f"may be {TASKS_MAX} at most", field="minPartitions")
    if max_records_per_partition is not None:
        tasks = sum(-(-_count(piece) // max_records_per_partition) for piece in pieces)
        if tasks > TASKS_MAX:
            raise InvalidRequest(
                f"{max_records_per_partition} would make {tasks} tasks, over the limit of "
                f"{TASKS_MAX}: allow more records in each",
                field="maxRecordsPerPartition",
            )
        pieces = [part for whole in pieces for part in _by_count(whole, max_records_per_partition)]
    share = None
    if min_partitions is not None:
        pieces = _split_largest(pieces, min_partitions)
        share = sum(map(_cost, pieces)) // min_partitions
    return _packed(pieces, min_partitions or 1, max_records_per_partition, share)


def _packed(
    pieces: Sequence[SegmentSlice],
    tasks_min: int,
    records_max: int | None,
    share: int | None,
) -> list[Task]:
    """Tasks in the order of the pieces. A task that costs `share` is large enough, too; with None
    only bytes decide.
    """
    tasks: list[Task] = []
    current: list[SegmentSlice] = []
    cost = size_bytes = records = 0
    for at, piece in enumerate(pieces):
        too_many = records_max is not None and records + _count(piece) > records_max
        # No more pieces are left than tasks are missing: from here on each piece gets its own.
        spread = len(pieces) - at <= tasks_min - len(tasks) - 1
        full = size_bytes >= TASK_BYTES_MIN or len(current) >= TASK_SLICES_MAX
        if share is not None and cost >= share:
            full = True
        if current and (full or too_many or spread):
            tasks.append(tuple(current))
            current, cost, size_bytes, records = [], 0, 0, 0
        current.append(piece)
        cost += _cost(piece)
        size_bytes += _bytes(piece)
        records += _count(piece)
    if current:
        tasks.append(tuple(current))
    return tasks


def _split_largest(pieces: Sequence[SegmentSlice], pieces_min: int) -> list[SegmentSlice]:
    """Cut the largest piece again and again until there are enough, or each has one offset."""
    parts = [1] * len(pieces)
    heap = [(-float(_cost(piece)), at) for at, piece in enumerate(pieces) if _count(piece) > 1]
    heapify(heap)
    for _ in range(pieces_min - len(pieces)):
        if not heap:
            break
        at = heap[0][1]
        parts[at] += 1
        if parts[at] < _count(pieces[at]):
            heapreplace(heap, (-_cost(pieces[at]) / parts[at], at))
        else:
            heappop(heap)
    return [part for piece, n in zip(pieces, parts, strict=True) for part in _into(piece, n)]


def _into(piece: SegmentSlice, parts: int) -> Iterator[SegmentSlice]:
    """Equal parts by offsets; a remainder gives the first parts one offset more."""
    if parts == 1:
        yield piece
        return
    size, rest = divmod(_count(piece), parts)
    at = piece.first_offset
    for number in range(parts):
        end = at + size + (number < rest)
        yield cut(piece, at, end - 1)
        at = end


def _by_count(piece: SegmentSlice, count_max: int) -> Iterator[SegmentSlice]:
    return _into(piece, -(-_count(piece) // count_max))


def _count(piece: SegmentSlice) -> int:
    return piece.last_offset - piece.first_offset + 1


def _cost(piece: SegmentSlice) -> int:
    return _bytes(piece) + SLICE_OVERHEAD_BYTES


def _bytes(piece: SegmentSlice) -> int:
    """Approximate bytes of the slice, as if spread evenly over the segment's offsets."""
    segment = piece.segment
    offsets = segment.end_offset - segment.start_offset + 1
    return segment.log_bytes * _count(piece) // offsets
