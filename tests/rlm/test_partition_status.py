"""The status page of a partition."""

from __future__ import annotations

from dataclasses import replace

from rlm.backoff import NO_BACK_OFF, BackOff, FailureKind
from rlm.copy_plan import Wait, WhyNot
from rlm.partition_status import (
    CopyUnderWay,
    Lag,
    LastError,
    LocalFacts,
    Role,
    StatusFacts,
    lag,
    partition_status,
    uncopied,
)
from rlmm.partition_state import Mode
from rlmm.segment import Incarnation
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

LOCAL = LocalFacts(log(100, 200, 300), epochs((0, 0)), 100, 280, NOW_MS - 5_000)
FACTS = StatusFacts(
    partition=PARTITION,
    role=Role.LEADER,
    state=state(highest=(199, 0), standing=claim(55, 0, Incarnation(4, uuid(4), 1))),
    local=LOCAL,
    held=None,
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
    assert page.lag == Lag(0, 0, 0)


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


def test_lag_leaves_the_active_segment_out_and_is_never_negative() -> None:
    assert [each.base_offset for each in uncopied(LOCAL.segments, 150)] == [100, 200]
    assert lag(LOCAL, 300, NOW_MS) == Lag(0, 0, 0)
    assert lag(replace(LOCAL, oldest_uncopied_ms=NOW_MS + 50), 0, NOW_MS) == Lag(2_000, 2, 0)
    assert lag(replace(LOCAL, oldest_uncopied_ms=None), 0, NOW_MS).age_ms == 0
