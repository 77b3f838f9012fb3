"""What a later leader's log lacks may be the last copy of it: it goes only when somebody asks."""

from __future__ import annotations

import pytest

from kafka_formats.errors import Conflict
from rlm.retention.acceptance import AskedAcceptance, acceptance_of
from rlm.retention.retention_plan import Reason, RetentionPlan
from tests.rlm.retention.test_retention_plan import (
    add,
    carry_out,
    going,
    number_of,
    plan,
    world,
)
from tests.rlmm.state_world import World


def goes(planned: RetentionPlan) -> list[int]:
    return [number_of(each.row) for each in planned.delete_now]


def ten_segments() -> World:
    of = world((0, 0))
    for number in range(10):
        add(of, number + 1, number * 100, number * 100 + 99)
    return of


@pytest.mark.parametrize("lineage", [((1, 600),), ((0, 0), (1, 300))])
@pytest.mark.parametrize("others", [0, 3])
def test_a_segment_across_the_log_start_is_not_below_it(
    lineage: tuple[tuple[int, int], ...], others: int
) -> None:
    """Its records from 600 on are lost to the leader, and DeleteRecords took those below."""
    of = world((0, 0))
    add(of, 1, 0, 999)
    for number in range(others):
        add(of, 2 + number, 1000 * (number + 1), 1000 * (number + 1) + 999)
    of.log_start(600, 0)
    of.claim(*lineage)
    planned = plan(of, percent_max=50.0)
    assert {each.reason for each in planned.deletions} == {Reason.UNREFERENCED}
    assert planned.brake is not None
    assert goes(planned) == []


def test_what_is_copied_since_in_a_lower_epoch_makes_the_share_no_smaller() -> None:
    """The replica without a log led for a while, then the one with the records again."""
    of = world((0, 0))
    add(of, 1, 0, 9)
    of.claim((1, 0))
    for number in range(5):
        add(of, number + 2, number * 10, number * 10 + 9, (1, number * 10))
    of.claim((0, 0), (2, 500))
    for number in range(1, 9):
        add(of, number + 10, number * 10, number * 10 + 9)
    planned = plan(of, percent_max=50.0)
    assert "5 segments, 83.3 % of what had been copied by then" in (planned.brake or "")
    assert goes(planned) == []


@pytest.mark.parametrize("pass_before", [False, True])
def test_segments_that_go_anyway_make_the_share_no_smaller(pass_before: bool) -> None:
    of = ten_segments()
    of.log_start(900, 0)
    if pass_before:
        carry_out(of, plan(of, percent_max=50.0))
    of.claim((0, 0), (1, 900))
    planned = plan(of, percent_max=50.0)
    assert "1 segments, 100.0 %" in (planned.brake or "")
    assert 10 not in goes(planned)


def test_what_goes_by_size_is_no_history() -> None:
    of = ten_segments()
    of.claim((0, 0), (1, 600))
    planned = plan(of, percent_max=50.0, retention_bytes=1024)
    assert "4 segments, 80.0 %" in (planned.brake or "")
    assert goes(planned) == []


def test_what_is_out_of_retention_and_waits_for_older_offsets_is_no_history() -> None:
    """The first segment is young: it holds the log start, and those behind it, back."""
    of = world((0, 0))
    for number in range(16):
        age_ms = 10_000 if 0 < number < 9 else 1
        add(of, number + 1, number * 10, number * 10 + 9, age_ms=age_ms)
    of.claim((0, 0), (1, 90))
    planned = plan(of, percent_max=50.0, retention_ms=5_000)
    assert "7 segments, 87.5 %" in (planned.brake or "")
    assert goes(planned) == []


def test_what_was_shown_before_an_election_is_not_accepted_after_it() -> None:
    of = ten_segments()
    shown = plan(of, percent_max=50.0, retention_bytes=1024)
    assert shown.log_start is not None
    asked = AskedAcceptance(100.0, shown.log_start.offset, "admin")
    planned = plan(of, percent_max=100.0, retention_bytes=1024)
    assert len(acceptance_of(of.partition, planned, of.token, 0, asked).segments) == 9
    of.claim((1, 0))
    planned = plan(of, percent_max=100.0, retention_bytes=1024)
    with pytest.raises(Conflict, match="the plan has changed"):
        acceptance_of(of.partition, planned, of.token, 0, asked)


def test_a_small_cut_goes_by_itself() -> None:
    of = ten_segments()
    of.claim((0, 0), (1, 800))
    assert goes(plan(of, percent_max=50.0)) == [9, 10]


@pytest.mark.parametrize("followed", [0, 20])
def test_what_a_leader_without_a_history_cut_off_stays_until_an_admin_accepts(
    followed: int,
) -> None:
    """However few segments these are, and however much was copied since."""
    of = world((0, 0))
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    of.claim((1, 0))
    for number in range(followed):
        add(of, number + 3, number * 10, number * 10 + 9, (1, number * 10))
    made = plan(of, percent_max=50.0)
    assert going(made) == [(1, Reason.UNREFERENCED), (2, Reason.UNREFERENCED)]
    assert made.brake is not None
    assert "100.0 %" in made.brake
    assert (made.move_now, made.delete_now) == (None, ())
    seen = frozenset(each.row.segment_id.id for each in made.deletions)
    assert plan(of, percent_max=50.0, accepted=seen).brake is None
    assert plan(of, percent_max=100.0).brake is None


def test_what_stays_until_it_is_accepted_does_not_go_with_a_later_smaller_cut() -> None:
    """The last copies of a lost log are still waiting when its successor's tail is cut."""
    of = world((0, 0))
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    of.claim((1, 0))
    for number in range(20):
        add(of, number + 3, number * 10, number * 10 + 9, (1, number * 10))
    of.claim((1, 0), (2, 190))
    made = plan(of, percent_max=50.0)
    assert [number for number, _ in going(made)] == [1, 2, 22]
    assert "of 2 segments, 100.0 % of what had been copied by then" in str(made.brake)
    assert made.delete_now == ()


def test_what_was_cut_off_does_not_go_early_because_its_older_half_is_out_of_retention() -> None:
    of = world((0, 0))
    for number in range(4):
        add(of, number + 1, number * 10, number * 10 + 9, age_ms=400 - number * 100)
    of.claim((1, 0))
    made = plan(of, percent_max=50.0, retention_ms=150)
    assert [number for number, _ in going(made)] == [1, 2, 3, 4]
    assert "of 1 segments, 100.0 %" in str(made.brake)
    assert plan(of, percent_max=50.0, retention_ms=99).brake is None


def test_a_small_part_cut_off_goes_and_so_does_what_the_policy_would_have_taken() -> None:
    of = world((0, 0))
    for number in range(4):
        add(of, number + 1, number * 10, number * 10 + 9, age_ms=500)
    of.claim((0, 0), (1, 20))
    assert plan(of, percent_max=50.0).brake is None
    assert plan(of, percent_max=49.0).brake is not None
    assert plan(of, percent_max=49.0, retention_ms=500).brake is not None
    assert plan(of, percent_max=49.0, retention_ms=499).brake is None
