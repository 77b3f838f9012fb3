from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from rlmm.rows import keys
from rlmm.rows.coverage import (
    cover,
    cover_all,
    coverage_of,
    covered_ranges,
    covering,
    epoch_ranges,
    intervals_over,
    uncover,
    uncovered_ranges,
)
from rlmm.rows.rows import MemoryRows, OverlayRows, RowReader
from rlmm.rows.values import Interval
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlmm.state_world import ORDERS, World, epochs, segment_uuid

EPOCH = 0


def finished(
    number: int, start: int, end: int, *leader_epochs: tuple[int, int]
) -> RemoteLogSegmentMetadata:
    """Finished at metadata offset `number`."""
    added = World().an_add(number, start, end, leader_epochs or ((EPOCH, start),))
    return replace(added, state=SegmentState.COPY_SEGMENT_FINISHED, finished_at=number)


def number_of(segment: Uuid) -> int:
    return int.from_bytes(segment, "big")


def coverage(rows: OverlayRows, epoch: int = EPOCH) -> list[tuple[int, int, int]]:
    return [
        (each.start, each.end, number_of(each.segment))
        for each in covered_ranges(rows, ORDERS, epoch, 0, 2**40)
    ]


def covered_by(*segments: tuple[int, int]) -> OverlayRows:
    """Segments finished in this order, numbered from 1."""
    rows = OverlayRows(MemoryRows())
    for number, (start, end) in enumerate(segments, 1):
        cover(rows, finished(number, start, end))
    return rows


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        # Kafka's worked examples (RemoteLogLeaderEpochStateTest)
        (((10, 100), (101, 200)), [(10, 100, 1), (101, 200, 2)]),
        (((10, 100), (5, 150)), [(5, 150, 2)]),
        (((10, 100), (5, 150), (148, 155), (4, 200)), [(4, 200, 4)]),
        (((10, 100), (10, 100)), [(10, 100, 2)]),
        (((10, 100), (10, 120)), [(10, 120, 2)]),
        # where Kafka's cache would hide the rest of the longer one
        (((10, 100), (50, 60)), [(10, 100, 1)]),
        (((50, 60), (10, 100)), [(10, 100, 2)]),
        (((10, 100), (50, 150)), [(10, 49, 1), (50, 150, 2)]),
        (((50, 150), (10, 100)), [(10, 49, 2), (50, 150, 1)]),
        (((10, 100), (90, 100)), [(10, 89, 1), (90, 100, 2)]),
        (((0, 9), (20, 29), (5, 24)), [(0, 4, 1), (5, 19, 3), (20, 29, 2)]),
    ],
)
def test_the_furthest_reaching_segment_serves_then_the_later_finished(
    segments: tuple[tuple[int, int], ...], expected: list[tuple[int, int, int]]
) -> None:
    assert coverage(covered_by(*segments)) == expected


def test_a_freed_range_is_served_by_the_best_of_the_others() -> None:
    rows = covered_by((0, 50), (40, 80), (30, 100))
    assert coverage(rows) == [(0, 29, 1), (30, 100, 3)]
    assert uncover(rows, finished(3, 30, 100)) == [(EPOCH, 81, 100)]
    assert coverage(rows) == [(0, 39, 1), (40, 80, 2)]


def test_what_a_segment_serves_stays_one_range_when_it_takes_over() -> None:
    rows = covered_by((0, 50), (20, 60))
    assert coverage(rows) == [(0, 19, 1), (20, 60, 2)]
    assert uncover(rows, finished(2, 20, 60)) == [(EPOCH, 51, 60)]
    assert coverage(rows) == [(0, 50, 1)]


def test_a_segment_that_serves_nothing_goes_without_a_trace() -> None:
    rows = covered_by((10, 20), (0, 30))
    assert uncover(rows, finished(1, 10, 20)) == []
    assert coverage(rows) == [(0, 30, 2)]


def test_epochs_are_covered_apart() -> None:
    rows = OverlayRows(MemoryRows())
    cover(rows, finished(1, 201, 300, (2, 201), (3, 240)))
    cover(rows, finished(2, 250, 400, (3, 250), (4, 370)))
    assert coverage(rows, 2) == [(201, 239, 1)]
    assert coverage(rows, 3) == [(240, 249, 1), (250, 369, 2)]
    assert coverage(rows, 4) == [(370, 400, 2)]


def test_epochs_without_an_offset_and_odd_starts_are_no_ranges() -> None:
    segment = finished(1, 100, 200, (0, 0), (1, 120), (2, 120), (3, 150))
    assert epoch_ranges(segment) == ((0, 100, 119), (2, 120, 149), (3, 150, 200))
    late = finished(1, 390, 420, (2, 396))
    assert epoch_ranges(late) == ((2, 396, 420),)


class CountingRows:
    """Counts the rows that scans read."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows
        self.read = 0

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for row in self._rows.scan(start, end, reverse=reverse):
            self.read += 1
            yield row


def test_the_search_for_overlaps_reads_no_far_away_rows() -> None:
    """One very long segment must not widen the search among many short ones."""
    rows = OverlayRows(MemoryRows())
    cover(rows, finished(1, 0, 1_000_000))
    for number in range(2, 500):
        cover(rows, finished(number, number * 10, number * 10 + 9))
    counting = CountingRows(rows)
    found = list(intervals_over(counting, ORDERS, EPOCH, 2500, 2509))
    assert {number_of(each.segment) for each in found} == {1, 250}
    assert counting.read <= 10


def test_holes_in_the_lineage_are_found() -> None:
    rows = OverlayRows(MemoryRows())
    cover(rows, finished(1, 0, 9, (0, 0)))
    cover(rows, finished(2, 15, 29, (0, 15), (1, 20)))
    lineage = epochs((0, 0), (1, 20), (2, 40))
    assert uncovered_ranges(rows, ORDERS, lineage, 0, 49) == [(10, 14), (30, 49)]
    assert uncovered_ranges(rows, ORDERS, lineage, 12, 25) == [(12, 14)]
    assert uncovered_ranges(rows, ORDERS, lineage, 16, 25) == []


Steps = list[tuple[int, int, int]]


@st.composite
def lives(draw: st.DrawFn) -> Steps:
    """(what, start, span): finish a new segment, or take away one of those that are there."""
    return draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 25)),
            min_size=1,
            max_size=25,
        )
    )


@settings(max_examples=100, deadline=None)
@given(lives())
def test_coverage_equals_an_obvious_model(steps: Steps) -> None:
    """The model: for each offset, the best of all finished segments that hold it."""
    rows = OverlayRows(MemoryRows())
    alive: dict[int, tuple[int, int]] = {}
    for number, (what, start, span) in enumerate(steps, 1):
        if what == 0 and alive:
            gone = sorted(alive)[start % len(alive)]
            bounds = alive.pop(gone)
            unserved = {
                offset
                for _, first, last in uncover(rows, finished(gone, *bounds))
                for offset in range(first, last + 1)
            }
            others = {o for low, high in alive.values() for o in range(low, high + 1)}
            assert unserved == set(range(bounds[0], bounds[1] + 1)) - others
        else:
            alive[number] = (start, start + span)
            cover(rows, finished(number, start, start + span))
        check_against(rows, alive)
        assert [row for row in rows.writes() if row[0][0] != 0x32 and row[0][0] != 0x33] == []


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.lists(st.integers(0, 8), min_size=1, max_size=3)),
        max_size=12,
    )
)
def test_all_segments_at_once_cover_as_one_after_the_other(
    segments: list[tuple[int, list[int]]],
) -> None:
    one_by_one, at_once = OverlayRows(MemoryRows()), OverlayRows(MemoryRows())
    made = []
    for number, (start, spans) in enumerate(segments, 1):
        starts = [start + sum(spans[:at]) + at for at in range(len(spans))]
        end = start + sum(spans) + len(spans) - 1
        made.append(finished(number, start, end, *enumerate(starts)))
        cover(one_by_one, made[-1])
    cover_all(at_once, made)
    assert at_once.writes() == one_by_one.writes()


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=8),
    st.integers(0, 30),
    st.integers(0, 40),
    st.lists(st.integers(0, 60), max_size=3, unique=True).map(sorted),
)
def test_what_is_not_covered_is_every_offset_that_nobody_serves(
    segments: list[tuple[int, int]], start: int, span: int, epoch_starts: list[int]
) -> None:
    rows = OverlayRows(MemoryRows())
    lineage = epochs(*enumerate([0, *(each for each in epoch_starts if each)]))
    for number, (first, length) in enumerate(segments, 1):
        cover(rows, finished(number, first, first + length, (number % len(lineage), first)))
    free = uncovered_ranges(rows, ORDERS, lineage, start, start + span)
    served = set()
    for index, (epoch, low) in enumerate(lineage):
        high = lineage[index + 1][1] if index + 1 < len(lineage) else 100
        served |= {at for at in range(low, high) if covering(rows, ORDERS, epoch, at) is not None}
    told = [offset for low, high in free for offset in range(low, high + 1)]
    assert told == [at for at in range(start, start + span + 1) if at not in served]
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(free))


def check_against(rows: OverlayRows, alive: dict[int, tuple[int, int]]) -> None:
    for offset in range(70):
        holding = [
            (end, number) for number, (start, end) in alive.items() if start <= offset <= end
        ]
        found = covering(rows, ORDERS, EPOCH, offset)
        served_by = None if found is None else number_of(found.segment)
        assert served_by == (max(holding)[1] if holding else None)
    numbers = [number for _, _, number in coverage(rows)]
    assert len(numbers) == len(set(numbers)), "a segment's coverage is one range"
    at_once = coverage_of(
        Interval(start, end, number, segment_uuid(number), True)
        for number, (start, end) in alive.items()
    )
    assert at_once == list(covered_ranges(rows, ORDERS, EPOCH, 0, 2**40))


def test_no_key_of_one_epoch_or_partition_lies_among_those_of_another() -> None:
    prefix = keys.coverage_prefix(ORDERS, 1)
    assert keys.coverage_from(prefix, 2**62) < keys.coverage_prefix(ORDERS, 2)
    assert keys.interval_key(ORDERS, 1, 2**62, 2**62, segment_uuid(2**127)) < keys.interval_prefix(
        ORDERS, 2
    )
