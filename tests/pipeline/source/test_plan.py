"""Tasks: every offset once, small segments packed, cut only where the query asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from pipeline.read.segment_slice import SegmentSlice
from pipeline.source.plan import TASK_BYTES_MIN, TASK_SLICES_MAX, TASKS_MAX, Task, plan_tasks
from tests.pipeline.source.tiered import partition, segment

MIB = 1024 * 1024


def slices(*sizes: tuple[int, int]) -> list[SegmentSlice]:
    """One after the other: (offsets, bytes)."""
    found, at = [], 0
    for count, log_bytes in sizes:
        found.append(SegmentSlice(segment(at, at + count - 1, log_bytes=log_bytes), at, at))
        found[-1] = SegmentSlice(found[-1].segment, at, at + count - 1)
        at += count
    return found


def offsets(tasks: list[Task]) -> list[int]:
    return [
        at
        for task in tasks
        for part in task
        for at in range(part.first_offset, part.last_offset + 1)
    ]


def size_bytes(task: Task) -> int:
    return sum(
        part.segment.log_bytes
        * (part.last_offset - part.first_offset + 1)
        // (part.segment.end_offset - part.segment.start_offset + 1)
        for part in task
    )


sizes = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 300 * MIB)), max_size=12)
asked = st.none() | st.integers(1, 60)


@given(sizes, asked, asked)
def test_every_offset_is_in_exactly_one_task(
    segments: list[tuple[int, int]], min_partitions: int | None, records_max: int | None
) -> None:
    parts = slices(*segments)
    tasks = plan_tasks(parts, min_partitions=min_partitions, max_records_per_partition=records_max)
    total = sum(count for count, _ in segments)
    assert offsets(tasks) == list(range(total))
    assert all(tasks)
    if min_partitions is not None:
        assert len(tasks) >= min(min_partitions, total)
    if records_max is not None:
        assert all(len(offsets([task])) <= records_max for task in tasks)
    if min_partitions is records_max is None:
        assert all(size_bytes(task) >= TASK_BYTES_MIN for task in tasks[:-1])
        assert [part for task in tasks for part in task] == parts


def test_nothing_to_read_needs_no_task() -> None:
    assert plan_tasks([], min_partitions=5) == []


def test_small_segments_share_a_task_and_a_large_one_is_not_cut() -> None:
    tasks = plan_tasks(slices(*[(100, 50 * MIB)] * 4, (100, 1024 * MIB), (100, 1)))
    assert [len(task) for task in tasks] == [3, 2, 1]


@pytest.mark.parametrize("mib", [1, 16])
def test_tasks_of_small_segments_read_128_mib_too(mib: int) -> None:
    tasks = plan_tasks(slices(*[(10, mib * MIB)] * 300))
    assert {size_bytes(task) for task in tasks[:-1]} == {TASK_BYTES_MIN}


def test_of_tiny_segments_a_task_opens_a_bounded_number() -> None:
    tasks = plan_tasks(slices(*[(10, 8_192)] * 3_000))
    assert [len(task) for task in tasks] == [TASK_SLICES_MAX, TASK_SLICES_MAX, 952]
    filled = plan_tasks(slices(*[(10, MIB // 8)] * 2_048))
    assert [size_bytes(task) for task in filled] == [TASK_BYTES_MIN, TASK_BYTES_MIN]


def test_what_it_costs_to_open_segments_is_shared_by_the_tasks_that_are_asked_for() -> None:
    tasks = plan_tasks(slices((10, 120 * MIB), *[(10, MIB)] * 31), min_partitions=2)
    assert [len(task) for task in tasks] == [5, 27]


@pytest.mark.parametrize("fewest", [1, 4])
def test_fewer_tasks_than_are_needed_anyway_ask_for_nothing(fewest: int) -> None:
    parts = slices(*[(10, MIB)] * 1_000)
    assert plan_tasks(parts, min_partitions=fewest) == plan_tasks(parts)


def test_one_large_segment_is_cut_into_equal_parts_where_tasks_are_asked_for() -> None:
    tasks = plan_tasks(slices((1_000, 900 * MIB), (10, MIB)), min_partitions=4)
    assert [len(offsets([task])) for task in tasks] == [334, 333, 333, 10]


def test_tasks_asked_for_are_of_like_size() -> None:
    tasks = plan_tasks(slices(*[(100, 10 * MIB)] * 40), min_partitions=8)
    assert [len(task) for task in tasks] == [5] * 8


def test_a_task_may_read_several_partitions() -> None:
    other = segment(0, 9, of=partition(number=1))
    tasks = plan_tasks([*slices((10, 5)), SegmentSlice(other, 0, 9)])
    assert [len(task) for task in tasks] == [2]


def test_what_would_make_millions_of_tasks_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="minPartitions"):
        plan_tasks([], min_partitions=TASKS_MAX + 1)
    with pytest.raises(InvalidRequest, match="maxRecordsPerPartition: 1 would make 500000000"):
        plan_tasks(slices((500_000_000, MIB)), max_records_per_partition=1)
