"""The status page of a partition."""

from __future__ import annotations

from dataclasses import replace

from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.lag import Lag
from rlm.copy.partition_status import (
    CopyUnderWay,
    LastError,
    LocalFacts,
    Role,
    StatusFacts,
    partition_status,
)
from rlmm.partition_state import Mode
from rlmm.segment import Incarnation, PartitionDeleteState
from tests.rlm.planner_facts import (
    NOW_MS,
    PARTITION,
    claim,
    epochs,
    log,
    segment_row,
    state,
    uuid,
)

SEALED_AT_MS = {100: NOW_MS - 6_000, 200: NOW_MS - 5_000, 300: None}
SEGMENTS = tuple(
    replace(each, sealed_at_ms=SEALED_AT_MS[each.base_offset]) for each in log(100, 200, 300)
)
LOCAL = LocalFacts(SEGMENTS, epochs((0, 0)), 100, 280)
FACTS = StatusFacts(
    partition=PARTITION,
    role=Role.LEADER,
    state=state(highest=(199, 0), standing=claim(55, 0, Incarnation(4, uuid(4), 1))),
    local=LOCAL,
    claim=None,
    leader_epoch=0,
    last_stable_offset=280,
    wait=Wait(WhyNot.WAITING_FOR_LSO, "280", None),
    back_off=NO_BACK_OFF,
    last_error=None,
    copying=None,
    now_ms=NOW_MS,
    metadata_offset=77,
)


def test_all_offsets_and_the_reason_stand_on_the_page() -> None:
    page = partition_status(FACTS)
    assert (page.role, page.mode, page.metadata_offset) == (Role.LEADER, Mode.SIDECAR, 77)
    assert (page.claim_token, page.claimed_by_node) == (55, 4)
    assert (page.local_log_start_offset, page.active_base_offset) == (100, 300)
    assert (page.high_watermark, page.last_stable_offset) == (280, 280)
    assert (page.log_start_offset, page.highest_copied_offset, page.next_offset) == (0, 199, 200)
    assert page.lag == Lag(1_000, 1, 5_000)
    assert (page.why_not_copying, page.why_not_text) == (WhyNot.WAITING_FOR_LSO, "280")
    assert page.blocked is None


def test_what_nobody_knows_is_minus_one() -> None:
    page = partition_status(
        replace(FACTS, role=Role.UNKNOWN, state=None, local=None, last_stable_offset=None)
    )
    unknown = (
        page.claim_token, page.claimed_by_node, page.local_log_start_offset,
        page.active_base_offset, page.high_watermark, page.last_stable_offset,
        page.log_start_offset, page.highest_copied_offset, page.highest_copied_epoch,
        page.next_offset,
    )  # fmt: skip
    assert set(unknown) == {-1}
    assert page.lag is None


def test_while_a_copy_is_under_way_there_is_no_reason_not_to_copy() -> None:
    copying = CopyUnderWay(segment_row(1, 200, 299).segment_id, 200, 299, 5, 10)
    page = partition_status(replace(FACTS, copying=copying))
    assert page.why_not_copying is None
    assert page.copying == copying


def test_a_corrupt_segment_shows_as_blocked_with_the_time_of_the_next_try() -> None:
    back_off = BackOff(2, NOW_MS + 9, FailureKind.CORRUPT, "batch at 10 is damaged")
    wait = Wait(WhyNot.BLOCKED, back_off.text, back_off.until_ms)
    error = LastError("corrupt_data", "batch at 10 is damaged", NOW_MS)
    page = partition_status(replace(FACTS, back_off=back_off, wait=wait, last_error=error))
    assert page.blocked == "batch at 10 is damaged"
    assert page.retry_at_ms == NOW_MS + 9
    assert page.last_error == error


def test_lag_is_told_where_the_partition_is_led_and_nowhere_else() -> None:
    assert partition_status(FACTS).lag == Lag(1_000, 1, 5_000)
    for role in (Role.FOLLOWER, Role.NOT_TIERED, Role.REMOTE_ONLY, Role.UNKNOWN):
        assert partition_status(replace(FACTS, role=role)).lag is None


def test_a_silent_broker_takes_the_lag_away_from_no_node() -> None:
    silent = replace(FACTS, role=Role.UNKNOWN)
    assert partition_status(replace(silent, claimed_here=True)).lag == Lag(1_000, 1, 5_000)
    unclaimed = replace(silent, state=None, led_when_last_heard=True)
    assert partition_status(unclaimed).lag == Lag(2_000, 2, 6_000)


def test_a_new_leader_knows_its_lag_before_its_first_copy() -> None:
    just_failed_over = replace(FACTS, claim=None, wait=None, state=state(highest=(199, 0)))
    assert partition_status(just_failed_over).lag == Lag(1_000, 1, 5_000)
    never_claimed = replace(FACTS, state=None)
    assert partition_status(never_claimed).lag == Lag(2_000, 2, 6_000)


def test_the_age_grows_as_long_as_a_pause_or_a_corrupt_segment_lasts() -> None:
    paused = replace(FACTS, wait=Wait(WhyNot.PAUSED, "paused", None))
    stuck = replace(FACTS, back_off=BackOff(9, NOW_MS + 9, FailureKind.CORRUPT, "damaged"))
    for facts in (paused, stuck):
        later = replace(facts, now_ms=NOW_MS + 3_600_000)
        assert partition_status(later).lag == Lag(1_000, 1, 3_605_000)


def test_what_is_being_deleted_lags_behind_nothing() -> None:
    deleted = state(delete_state=PartitionDeleteState.DELETE_PARTITION_MARKED)
    assert partition_status(replace(FACTS, state=deleted)).lag is None
