"""What a follower far behind does; cases after Kafka's TierStateMachine and KIP-1023."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_formats.errors import Fenced, InvalidRequest, NotFound, RetryLater
from kafka_formats.leader_epoch_checkpoint import end_offset_for, epoch_for_offset
from rlm.fetch.follower_start import (
    NONE,
    OFFSET_MOVED_TO_TIERED_STORAGE,
    OFFSET_OUT_OF_RANGE,
    FollowerFetchAnswer,
    FollowerFetchQuery,
    FollowerPlan,
    answer_follower_fetch,
)
from rlmm.partition_state import LostOffsets, PartitionState
from rlmm.rows.queries import SegmentAnswer
from tests.rlm.planner_facts import PARTITION, claim, epochs, segment_row, state

LINEAGE = epochs((0, 20), (1, 85), (3, 90), (4, 98))
"""Kafka's example: with a local log start of 90 the epoch below it is 1, not 2."""

STATE = state(lineage=LINEAGE, log_start=20, highest=(94, 3), standing=claim(5, 4))
QUERY = FollowerFetchQuery(PARTITION, fetch_offset=30, leader_epoch=4)
SEGMENT = segment_row(1, 80, 94, leader_epochs=((0, 80), (1, 85), (3, 90)))


def ask(
    query: FollowerFetchQuery = QUERY,
    known: PartitionState | None = STATE,
    *,
    local_start: int = 90,
    found: dict[tuple[int, int], SegmentAnswer] | None = None,
) -> FollowerFetchAnswer:
    segments = {(1, 89): SegmentAnswer(SEGMENT, 94)} if found is None else found
    return answer_follower_fetch(
        query, local_start, known, lambda epoch, offset: segments.get((epoch, offset)), 77
    )


def test_below_the_leaders_local_log_the_follower_builds_from_the_tier() -> None:
    answer = ask()
    assert answer.plan is FollowerPlan.BUILD_FROM_TIER
    assert answer.error_code == OFFSET_MOVED_TO_TIERED_STORAGE == 109
    assert answer.segment == SEGMENT
    assert answer.fetch_offset == 95  # above the leader's local start: the segment reaches there
    assert answer.log_start_offset == 20
    assert answer.leader_epochs == epochs((0, 20), (1, 85), (3, 90))
    assert answer.producer_snapshot_exact
    assert answer.metadata_offset == 77


def test_the_leader_epochs_end_below_the_fetch_offset() -> None:
    found = {(1, 89): SegmentAnswer(segment_row(1, 80, 89), 89)}
    answer = ask(found=found)
    assert answer.fetch_offset == 90
    assert answer.leader_epochs == epochs((0, 20), (1, 85))


def test_an_epoch_in_which_nothing_was_written_serves_nothing() -> None:
    """Epochs 1 and 3 are empty: 89 belongs to epoch 0, though epoch 1 ends where 2 begins."""
    lineage = epochs((0, 20), (1, 90), (2, 90), (3, 95), (4, 95))
    found = {(0, 89): SegmentAnswer(segment_row(1, 80, 94, leader_epochs=((0, 80), (2, 90))), 94)}
    answer = ask(known=replace(STATE, lineage=lineage), found=found)
    assert (answer.plan, answer.fetch_offset) == (FollowerPlan.BUILD_FROM_TIER, 95)
    assert answer.leader_epochs == epochs((0, 20), (1, 90), (2, 90))


@given(
    st.dictionaries(st.integers(0, 12), st.integers(0, 60), min_size=1, max_size=6),
    st.integers(1, 80),
)
def test_the_epoch_asked_for_is_that_of_kafkas_tier_state_machine(
    made: dict[int, int], local_start: int
) -> None:
    """KIP-405: ask the leader for the epoch of its local log start, then where the one below it
    ended; epochs may be missing, the leader's history may begin above 0.
    """
    starts = sorted(set(made.values()))
    lineage = epochs(*zip(sorted(made), starts, strict=False))
    log_end, wanted = 100, local_start - 1
    assume(lineage[0].start_offset <= wanted)
    epoch = epoch_for_offset(lineage, local_start)
    assert epoch is not None
    if epoch > 0:
        below, end = end_offset_for(lineage, epoch - 1, log_end)
        epoch = below if end > wanted else epoch
    asked: list[tuple[int, int]] = []

    def segment_for_offset(leader_epoch: int, offset: int) -> SegmentAnswer | None:
        asked.append((leader_epoch, offset))
        return SegmentAnswer(segment_row(1, 0, 99), 99)

    first = lineage[0].start_offset
    known = state(lineage=lineage, log_start=first, highest=(99, lineage[-1].epoch))
    query = FollowerFetchQuery(PARTITION, fetch_offset=0, leader_epoch=lineage[-1].epoch)
    answer_follower_fetch(query, local_start, known, segment_for_offset, 77)
    assert asked == [(epoch, wanted)]


def test_a_diverged_tail_is_left_out_and_its_snapshot_called_inexact() -> None:
    answer = ask(found={(1, 89): SegmentAnswer(SEGMENT, 91)})
    assert answer.fetch_offset == 92
    assert not answer.producer_snapshot_exact


def test_from_the_leaders_local_start_on_the_follower_just_fetches() -> None:
    answer = ask(replace(QUERY, fetch_offset=90))
    assert (answer.plan, answer.error_code) == (FollowerPlan.FETCH_LOCALLY, NONE)
    assert (answer.fetch_offset, answer.log_start_offset) == (90, 20)


def test_below_the_log_start_the_plan_is_the_same_but_the_error_another() -> None:
    answer = ask(replace(QUERY, fetch_offset=10))
    assert answer.plan is FollowerPlan.BUILD_FROM_TIER
    assert answer.error_code == OFFSET_OUT_OF_RANGE


def test_with_nothing_tiered_the_follower_truncates_and_starts_at_the_local_start() -> None:
    answer = ask(known=state(lineage=LINEAGE, log_start=20, standing=claim(5, 4)))
    assert answer.plan is FollowerPlan.TRUNCATE_FULLY
    assert answer.fetch_offset == answer.log_start_offset == 90
    assert answer.segment is None


def test_a_tier_whose_log_start_passed_the_local_start_has_nothing_to_build_from() -> None:
    answer = ask(known=replace(STATE, log_start_offset=92))
    assert answer.plan is FollowerPlan.TRUNCATE_FULLY


def test_an_uncopied_gap_below_the_local_start_is_waited_for() -> None:
    with pytest.raises(RetryLater, match="not tiered yet"):
        ask(found={})


def test_a_gap_recorded_as_lost_is_not_waited_for() -> None:
    lost = (LostOffsets(80, 89, "gone"),)
    answer = ask(known=replace(STATE, lost_ranges=lost), found={})
    assert answer.plan is FollowerPlan.TRUNCATE_FULLY
    assert (answer.fetch_offset, answer.log_start_offset) == (90, 20)
    assert answer.leader_epochs == epochs((0, 20), (1, 85))


@pytest.mark.parametrize("log_start", [-1, 20])
def test_below_the_head_of_the_lineage_nothing_is_waited_for(log_start: int) -> None:
    """The first checkpoint that was claimed with had lost its head: no epoch is known there."""
    known = replace(STATE, lineage=epochs((1, 95), (4, 98)), log_start_offset=log_start)
    answer = ask(known=known, found={})
    assert answer.plan is FollowerPlan.TRUNCATE_FULLY
    assert (answer.fetch_offset, answer.log_start_offset) == (90, 90 if log_start < 0 else 20)
    assert answer.leader_epochs == ()


def test_an_empty_follower_may_start_after_the_last_tiered_offset() -> None:
    found = {(3, 94): SegmentAnswer(SEGMENT, 94)}
    answer = ask(replace(QUERY, from_last_tiered=True), found=found)
    assert answer.fetch_offset == 95
    local = ask(
        replace(QUERY, from_last_tiered=True), local_start=96, found={(3, 95): found[3, 94]}
    )
    assert local.fetch_offset == 95


def test_an_older_leader_epoch_is_fenced_and_a_newer_one_waited_for() -> None:
    with pytest.raises(Fenced, match="FENCED_LEADER_EPOCH"):
        ask(replace(QUERY, leader_epoch=3))
    with pytest.raises(RetryLater, match="UNKNOWN_LEADER_EPOCH"):
        ask(replace(QUERY, leader_epoch=5))


def test_a_claim_that_an_admin_voided_still_tells_of_its_leader_alone() -> None:
    """After a change of the mode, or a reset, for as long as nobody claims: a later leader's
    history may leave the lineage of the claim before.
    """
    voided = replace(STATE, claim=None, voided_claim=STATE.claim)
    assert ask(known=voided).plan is FollowerPlan.BUILD_FROM_TIER
    with pytest.raises(Fenced, match="FENCED_LEADER_EPOCH"):
        ask(replace(QUERY, leader_epoch=3), voided)
    with pytest.raises(RetryLater, match="UNKNOWN_LEADER_EPOCH"):
        ask(replace(QUERY, leader_epoch=5), voided)


def test_without_any_claim_the_lineage_tells_of_leaders_up_to_its_last_epoch() -> None:
    """Of a tier that was rebuilt from its bucket, or came from Kafka's own metadata topic."""
    rebuilt = replace(STATE, claim=None)
    assert ask(known=rebuilt).plan is FollowerPlan.BUILD_FROM_TIER
    with pytest.raises(RetryLater, match="UNKNOWN_LEADER_EPOCH"):
        ask(replace(QUERY, leader_epoch=5), rebuilt)


def test_a_partition_the_log_never_heard_of_is_not_found() -> None:
    with pytest.raises(NotFound):
        ask(known=None)


@pytest.mark.parametrize("field", ["fetch_offset", "leader_epoch"])
def test_negative_numbers_name_their_field(field: str) -> None:
    query = FollowerFetchQuery(
        PARTITION,
        fetch_offset=-1 if field == "fetch_offset" else 0,
        leader_epoch=-1 if field == "leader_epoch" else 0,
    )
    with pytest.raises(InvalidRequest) as caught:
        ask(query)
    assert caught.value.field == field
    with pytest.raises(InvalidRequest) as caught:
        ask(local_start=-1)
    assert caught.value.field == "leader_local_log_start_offset"
