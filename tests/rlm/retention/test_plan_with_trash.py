"""Plans of retention with a trash: a mark first, and the log start once its time is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from rlm.retention.retention_plan import (
    LogStartMove,
    Reason,
    RetentionFacts,
    RetentionPlan,
    plan_retention,
)
from rlmm.partition_state import ExpiryMark as Mark
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import ExpiryMark, ExpiryTakenBack, LogStart
from rlmm.rows import queries
from tests.rlm.retention.test_retention_plan import NOW_MS, add, going, number_of, world
from tests.rlmm.state_world import World

TRASH_MS = 1_000


def segments(count: int, *, size_bytes: int = 1_000) -> World:
    """Segments of 100 offsets, each a day younger than the one before."""
    of = world()
    for number in range(count):
        start, age_ms = 100 * number, (count - number) * 86_400_000
        add(of, number + 1, start, start + 99, size_bytes=size_bytes, age_ms=age_ms)
    return of


def plan(
    of: World,
    *,
    days: float = -1,
    retention_bytes: int = -1,
    due: Mark | None = None,
    percent_max: float = 100.0,
    trash_ms: int = TRASH_MS,
    accepted: frozenset[Uuid] = frozenset(),
    stayed: frozenset[Uuid] = frozenset(),
) -> RetentionPlan:
    policy = TopicPolicy(-1 if days < 0 else int(days * 86_400_000), retention_bytes)
    rows = tuple(queries.list_segments(of.rows, of.partition))
    return plan_retention(
        RetentionFacts(
            of.state,
            rows,
            policy,
            NOW_MS,
            percent_max,
            accepted=accepted,
            trash_ms=trash_ms,
            due=due,
            stayed=stayed,
        )
    )


def carry_out(of: World, made: RetentionPlan, due: Mark | None = None) -> None:
    """As the node does it; every step has to be accepted."""
    move, mark = made.move_now, made.mark_now
    if move is not None:
        of.accept(
            LogStart(
                of.partition,
                of.token,
                move.leader_epoch,
                move.offset,
                policy_offset=-1,
                mark_offset=-1 if due is None else due.marked_at,
                seen_ms=TRASH_MS,
            )
        )
    for each in made.delete_now:
        of.accept(of.a_delete(number_of(each.row)))
    if mark is not None:
        size_bytes = sum(each.row.size_bytes for each in made.marked)
        of.accept(
            ExpiryMark(
                of.partition,
                of.token,
                mark.leader_epoch,
                mark.offset,
                -1,
                TRASH_MS,
                len(made.marked),
                size_bytes,
                joins=False,
                why=made.text,
            )
        )


def marked(of: RetentionPlan) -> list[tuple[int, Reason]]:
    return [(number_of(each.row), each.reason) for each in of.marked]


def test_the_policy_marks_and_deletes_nothing() -> None:
    of = segments(4)
    made = plan(of, days=2.5)
    assert (made.log_start, made.deletions) == (None, ())
    assert made.mark == LogStartMove(200, 0)
    assert marked(made) == [(1, Reason.TIME), (2, Reason.TIME)]
    assert made.expiring_bytes == 2_000
    carry_out(of, made)
    assert (of.state.log_start_offset, of.state.first_readable_offset) == (0, 200)
    again = plan(of, days=2.5)
    assert (again.taken, again.up_to) == ((), None), "once is enough"


def test_the_log_start_follows_a_mark_whose_time_is_over_and_no_other() -> None:
    of = segments(4)
    carry_out(of, plan(of, days=3.5))
    carry_out(of, plan(of, days=2.5))
    first, second = of.state.expiry.marks
    made = plan(of, days=2.5, due=first)
    assert made.log_start == LogStartMove(100, 0)
    assert going(made) == [(1, Reason.TRASH)]
    assert (made.mark, made.marked, made.expiring_bytes) == (None, (), 0)
    carry_out(of, made, first)
    made = plan(of, days=1.5, due=second)
    assert going(made) == [(2, Reason.TRASH)]
    assert marked(made) == [(3, Reason.TIME)]
    carry_out(of, made, second)
    assert of.listed() == [1, 2, 3, 4]
    assert (of.state.log_start_offset, of.state.first_readable_offset) == (200, 300)


def test_what_is_marked_goes_though_the_policy_keeps_it_by_now() -> None:
    of = segments(4)
    carry_out(of, plan(of, days=2.5))
    (mark,) = of.state.expiry.marks
    assert going(plan(of, due=mark)) == [(1, Reason.TRASH), (2, Reason.TRASH)]


def test_retention_by_size_counts_nothing_in_the_trash() -> None:
    of = segments(4)
    made = plan(of, retention_bytes=2_000)
    assert marked(made) == [(1, Reason.SIZE), (2, Reason.SIZE)]
    carry_out(of, made)
    assert plan(of, retention_bytes=2_000).up_to is None
    add(of, 5, 400, 499, size_bytes=1_000)
    assert marked(plan(of, retention_bytes=2_000)) == [(3, Reason.SIZE)]


def test_the_brake_counts_what_is_not_in_the_trash_alone() -> None:
    of = segments(40)
    carry_out(of, plan(of, days=20.5, percent_max=50.0))
    assert of.state.first_readable_offset == 2_000
    made = plan(of, days=8.5, percent_max=50.0)
    assert "12 segments, 60.0 %" in str(made.brake)
    assert made.mark_now is None
    (mark,) = of.state.expiry.marks
    assert plan(of, days=20.5, percent_max=50.0, due=mark).brake is None, "it was let through"


def test_a_hold_stops_what_the_policy_takes() -> None:
    of = segments(4)
    carry_out(of, plan(of, days=2.5))
    of.accept(ExpiryTakenBack(of.partition, of.state.expiry.offset, True, "ann", "by mistake"))
    of.log_start(100, 0)
    for trash_ms in (TRASH_MS, 0):
        made = plan(of, days=2.5, trash_ms=trash_ms)
        assert "ann took back" in str(made.hold)
        assert "ann took back" in made.text
        assert (made.move_now, made.mark_now) == (None, None)
        assert [number_of(each.row) for each in made.delete_now] == [1], "an admin's log start"


def test_without_a_trash_what_was_marked_goes_at_once() -> None:
    of = segments(4)
    carry_out(of, plan(of, days=2.5))
    made = plan(of, days=2.5, trash_ms=0)
    assert made.log_start == LogStartMove(200, 0)
    assert going(made) == [(1, Reason.TRASH), (2, Reason.TRASH)]
    carry_out(of, made)
    assert of.state.expiry.marks == ()


@pytest.mark.parametrize("days", [2.5, 0.0])
def test_an_overlapping_segment_goes_with_the_log_start(days: float) -> None:
    of = segments(4)
    add(of, 9, 150, 249, (0, 150), age_ms=4 * 86_400_000)
    carry_out(of, plan(of, days=days))
    (mark,) = of.state.expiry.marks
    made = plan(of, days=days, due=mark)
    carry_out(of, made, mark)
    gone = {number for number, _ in going(made)}
    assert gone == ({1, 2, 9} if days else {1, 2, 3, 4, 9})


def test_the_log_start_follows_a_mark_into_a_segment_that_was_copied_later() -> None:
    """Its offsets below are hidden already, and go with it."""
    of = segments(2)
    carry_out(of, plan(of, days=0))
    (mark,) = of.state.expiry.marks
    add(of, 9, 150, 249, (0, 150))
    made = plan(of, due=mark)
    assert made.log_start == LogStartMove(200, 0)
    carry_out(of, made, mark)
    assert going(made) == [(1, Reason.TRASH), (2, Reason.TRASH)]
    assert of.state.expiry.marks == ()


@given(st.lists(st.sampled_from([4.5, 3.5, 2.5, 1.5, 0.5, -1.0]), max_size=6))
def test_in_the_end_the_trash_makes_no_difference(policies: list[float]) -> None:
    with_trash, without = segments(5), segments(5)
    for days in policies:
        carry_out(without, plan(without, days=days, trash_ms=0))
        marks = with_trash.state.expiry.marks
        due = marks[-1] if marks else None
        carry_out(with_trash, plan(with_trash, days=days, due=due), due)
        assert with_trash.state.first_readable_offset == without.state.log_start_offset
    marks = with_trash.state.expiry.marks
    if marks:
        carry_out(with_trash, plan(with_trash, due=marks[-1]), marks[-1])
    assert with_trash.state.log_start_offset == without.state.log_start_offset
    assert with_trash.state.segment_count == without.state.segment_count


# ---- what a later leader's log lacks


def cut_off() -> World:
    """Of ten segments, a day apart, the leader lacks the last two."""
    of = segments(10)
    of.claim((0, 0), (1, 800))
    return of


def ids(*numbers: int) -> frozenset[Uuid]:
    return frozenset(Uuid(number.to_bytes(16, "big")) for number in numbers)


def test_what_a_later_leader_lacks_stays_for_the_time_of_the_trash() -> None:
    of = cut_off()
    made = plan(of)
    assert going(made) == [(9, Reason.UNREFERENCED), (10, Reason.UNREFERENCED)]
    assert made.stays == made.outside_lineage == ids(9, 10)
    assert (made.delete_now, made.taken_now, made.only_waits) == ((), (), True)
    assert made.text == "2 segments outside the lineage stay for 1 s from when this was seen"
    assert "a leader that has its records brings it back" in made.deletions[0].text
    made = plan(of, stayed=ids(9))
    assert [number_of(each.row) for each in made.delete_now] == [9]
    assert not made.only_waits
    assert made.text.startswith("1 segments go; 1 segments outside the lineage stay")
    assert (made.expiring_bytes, made.expiring_now_bytes) == (2_000, 1_000)
    carry_out(of, made)
    assert plan(of, trash_ms=0).only_waits is False
    carry_out(of, plan(of, trash_ms=0))


def test_a_leader_with_its_records_brings_it_back() -> None:
    of = cut_off()
    of.claim((0, 0), (2, 1_000))
    made = plan(of, stayed=ids(9, 10))
    assert (made.taken, made.outside_lineage) == ((), frozenset())


def test_what_nobody_can_want_back_goes_at_once() -> None:
    of = cut_off()
    assert plan(of, accepted=ids(9)).stays == ids(10), "an admin accepted it"
    assert plan(of, days=1.5).stays == ids(10), "its retention is over"
    below = segments(10)
    below.log_start(900, 0)
    below.claim((0, 0), (1, 900))
    assert plan(below).stays == ids(10)
    after_delete_records = segments(3)
    after_delete_records.claim((0, 0), (1, 100))
    add(after_delete_records, 20, 100, 399, (1, 100))
    after_delete_records.log_start(250, 1)
    made = plan(after_delete_records)
    assert (2, Reason.UNREFERENCED) in going(made)
    assert made.stays == ids(3), "the second one ends below the log start"


def test_the_brake_for_what_was_cut_off_is_on_from_the_first_plan() -> None:
    made = plan(cut_off(), percent_max=10.0)
    assert "a later leader's log lacks the records of 2 segments" in (made.brake or "")
    assert not made.only_waits


def test_what_stays_does_not_count_in_the_brake_of_the_policy() -> None:
    """So that it does not hold back, for a day, what retention takes meanwhile."""
    of = segments(40)
    of.claim((0, 0), (1, 3_000))
    made = plan(of, days=30.5, percent_max=45.0)
    assert (len(made.marked), len(made.stays), made.brake) == (10, 10, None)
    made = plan(of, days=30.5, percent_max=45.0, stayed=made.stays)
    assert "this pass would take 20 segments" in (made.brake or "")


@pytest.mark.parametrize("staying", [0, 5])
def test_what_stays_does_not_make_the_share_of_the_policy_smaller(staying: int) -> None:
    of = segments(20 + staying)
    if staying:
        of.claim((0, 0), (1, 2_000))
    made = plan(of, days=staying + 9.5, percent_max=50.0)
    assert (len(made.marked), len(made.stays)) == (11, staying)
    assert "this pass would take 11 segments, 55.0 %" in (made.brake or "")
