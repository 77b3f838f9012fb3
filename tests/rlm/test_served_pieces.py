"""Walking over what is served: across segments, epochs, lost ranges and dead tails."""

from __future__ import annotations

from rlm.served_pieces import Coverage, served_at_or_after
from rlmm.partition_state import LostOffsets, PartitionState
from rlmm.queries import SegmentAnswer
from rlmm.segment import RemoteLogSegmentMetadata
from tests.rlm.planner_facts import epochs, segment_row, state

A = segment_row(1, 0, 99)
B = segment_row(2, 100, 199, leader_epochs=((0, 100), (2, 150)))
C = segment_row(3, 300, 399, leader_epochs=((2, 300),))
Range = tuple[int, int, int, RemoteLogSegmentMetadata]


def coverage(known: PartitionState, ranges: list[Range]) -> Coverage:
    """Ranges are (epoch, first, last, segment)."""

    def look_up(epoch: int, offset: int) -> SegmentAnswer | None:
        for each_epoch, first, last, segment in ranges:
            if each_epoch == epoch and first <= offset <= last:
                return SegmentAnswer(segment, last)
        return None

    return Coverage(known, look_up, lambda: [segment for _, _, _, segment in ranges])


def walk(covered: Coverage, start: int) -> list[tuple[int, int, int]]:
    pieces = []
    offset = start
    while (served := served_at_or_after(covered, offset)) is not None:
        pieces.append((served.offset, served.valid_until, served.metadata.segment_id.id[-1]))
        offset = served.valid_until + 1
    return pieces


LINEAGE = epochs((0, 0), (2, 150))
FULL: list[Range] = [(0, 0, 99, A), (0, 100, 149, B), (2, 150, 199, B), (2, 300, 399, C)]


def test_pieces_follow_each_other_across_segments_and_epochs() -> None:
    known = state(lineage=LINEAGE, highest=(399, 2), lost=(LostOffsets(200, 299, "gone"),))
    expected = [(0, 99, 1), (100, 149, 2), (150, 199, 2), (300, 399, 3)]
    assert walk(coverage(known, FULL), 0) == expected
    assert walk(coverage(known, FULL), 250) == expected[3:]


def test_a_hole_that_nobody_recorded_is_passed_over_to_the_next_segment() -> None:
    known = state(lineage=LINEAGE, highest=(399, 2))
    assert walk(coverage(known, FULL), 200) == [(300, 399, 3)]


def test_nothing_below_the_log_start_or_above_the_highest_copied_is_served() -> None:
    known = state(lineage=LINEAGE, log_start=120, highest=(349, 2))
    assert walk(coverage(known, FULL), 0)[0] == (120, 149, 2)
    assert served_at_or_after(coverage(known, FULL), 350) is None


def test_with_nothing_copied_nothing_is_served() -> None:
    assert served_at_or_after(coverage(state(), []), 0) is None


def test_a_hole_at_the_end_ends_the_walk() -> None:
    known = state(lineage=LINEAGE, highest=(399, 2))
    assert walk(coverage(known, FULL[:3]), 200) == []


def test_the_first_epoch_serves_offsets_below_its_known_start() -> None:
    known = state(lineage=epochs((0, 50), (2, 150)), highest=(199, 2))
    assert walk(coverage(known, FULL[:3]), 10)[0] == (10, 99, 1)
