"""When this node claims a partition, goes on, or keeps away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import (
    Lead,
    LeadershipFacts,
    Leads,
    NoAnswer,
    NotLeading,
    OwnClaim,
    ProposeClaim,
    RefusedClaim,
    StandBy,
    decide,
)
from rlmm.partition_state import Mode
from rlmm.segment import Incarnation, PartitionDeleteState
from tests.rlm.planner_facts import DIRECTORY, ME, NOW_MS, claim, epochs, state, uuid

CHECKPOINT = epochs((0, 0), (2, 100))
FACTS = LeadershipFacts(
    word=Leads(2, 500), checkpoint=CHECKPOINT, state=None, incarnation=ME, now_ms=NOW_MS
)
OTHER_NODE = Incarnation(9, uuid(9), 1)


def stand_by(facts: LeadershipFacts) -> StandBy:
    decision = decide(facts)
    assert isinstance(decision, StandBy)
    return decision


def test_a_leader_of_an_unknown_partition_claims_it_at_the_brokers_epoch() -> None:
    assert decide(FACTS) == ProposeClaim(2)


def test_a_broker_that_does_not_lead_means_no_claim_and_ends_copies() -> None:
    decision = stand_by(replace(FACTS, word=NotLeading()))
    assert decision.why is WhyNot.NOT_LEADER
    assert decision.cancel


def test_a_broker_that_cannot_be_asked_starts_nothing_and_ends_nothing() -> None:
    decision = stand_by(replace(FACTS, word=NoAnswer("connection refused")))
    assert decision == StandBy(WhyNot.BROKER_UNAVAILABLE, "connection refused", cancel=False)


def test_a_claim_of_another_node_ends_copies_also_where_the_broker_cannot_be_asked() -> None:
    facts = replace(
        FACTS,
        word=NoAnswer("connection refused"),
        state=state(standing=claim(8, 3, OTHER_NODE)),
        claim=OwnClaim(7, 2),
    )
    decision = stand_by(facts)
    assert (decision.why, decision.cancel) == (WhyNot.CLAIMED_ELSEWHERE, True)
    mine = replace(facts, state=state(standing=claim(7, 2)))
    assert stand_by(mine).why is WhyNot.BROKER_UNAVAILABLE


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_epoch_that_the_checkpoint_does_not_end_with_is_waited_for(epoch: int) -> None:
    decision = stand_by(replace(FACTS, word=Leads(epoch, 500)))
    assert decision.why is WhyNot.EPOCH_NOT_ON_DISK
    assert not decision.cancel


def test_a_log_without_leader_epochs_is_not_claimed() -> None:
    never_written_to = replace(FACTS, checkpoint=(), word=Leads(2, 0))
    assert stand_by(never_written_to).why is WhyNot.NO_LEADER_EPOCH


def test_a_log_that_was_written_to_and_has_no_leader_epochs_lost_them() -> None:
    decision = stand_by(replace(FACTS, checkpoint=()))
    assert (decision.why, decision.cancel) == (WhyNot.EPOCHS_MISSING, False)
    assert "reaches to offset 500" in decision.text


def test_the_held_claim_that_stands_lets_planning_go_on_with_the_brokers_lso() -> None:
    facts = replace(FACTS, state=state(standing=claim(100, 2)), claim=OwnClaim(100, 2))
    assert decide(facts) == Lead(500)


def test_a_higher_epoch_on_the_same_node_is_claimed_anew() -> None:
    facts = replace(FACTS, state=state(standing=claim(100, 1)), claim=OwnClaim(100, 1))
    assert decide(facts) == ProposeClaim(2)


def test_a_claim_of_an_earlier_life_of_this_node_is_replaced() -> None:
    before = Incarnation(ME.node_id, DIRECTORY, ME.boot_counter - 1)
    facts = replace(FACTS, state=state(standing=claim(100, 2, before)))
    assert decide(facts) == ProposeClaim(2)


def test_a_claim_of_a_later_life_of_this_node_is_respected() -> None:
    later = Incarnation(ME.node_id, DIRECTORY, ME.boot_counter + 1)
    facts = replace(FACTS, state=state(standing=claim(100, 2, later)))
    assert stand_by(facts).why is WhyNot.CLAIMED_ELSEWHERE


@pytest.mark.parametrize("epoch", [2, 3])
def test_another_nodes_claim_at_the_same_or_a_higher_epoch_fences_this_node(epoch: int) -> None:
    facts = replace(
        FACTS, state=state(standing=claim(100, epoch, OTHER_NODE)), claim=OwnClaim(50, 2)
    )
    decision = stand_by(facts)
    assert decision.why is WhyNot.CLAIMED_ELSEWHERE
    assert decision.cancel


def test_another_nodes_claim_at_a_lower_epoch_is_followed() -> None:
    facts = replace(FACTS, state=state(standing=claim(100, 1, OTHER_NODE)))
    assert decide(facts) == ProposeClaim(2)


def test_a_held_claim_that_was_voided_is_proposed_again() -> None:
    facts = replace(FACTS, state=state(voided=claim(100, 2)), claim=OwnClaim(100, 2))
    assert decide(facts) == ProposeClaim(2)


def test_a_voided_claim_still_bounds_the_epoch() -> None:
    facts = replace(FACTS, state=state(voided=claim(100, 3, OTHER_NODE)))
    assert stand_by(facts).why is WhyNot.CLAIMED_ELSEWHERE


@pytest.mark.parametrize("mode", [Mode.DELEGATED, Mode.READ_ONLY, Mode.PAUSED])
def test_only_sidecar_partitions_are_claimed(mode: Mode) -> None:
    decision = stand_by(replace(FACTS, state=state(mode=mode)))
    assert decision.why is WhyNot.MODE
    assert decision.cancel
    assert mode.name.lower() in decision.text


def test_a_partition_marked_deleted_is_left_alone_even_when_the_broker_is_silent() -> None:
    marked = state(delete_state=PartitionDeleteState.DELETE_PARTITION_MARKED)
    decision = stand_by(replace(FACTS, state=marked, word=NoAnswer("down")))
    assert decision.why is WhyNot.PARTITION_DELETED
    assert decision.cancel


def test_a_refused_claim_is_not_repeated_before_its_time_or_another_epoch() -> None:
    refused = RefusedClaim(2, 100, "SUSPECT: an admin must reset the claim", NOW_MS + 1)
    standing = state(standing=claim(100, 1, OTHER_NODE))
    facts = replace(FACTS, refused=refused, state=standing)
    assert stand_by(facts).text == refused.text
    assert decide(replace(facts, now_ms=NOW_MS + 1)) == ProposeClaim(2)
    assert decide(replace(facts, refused=replace(refused, leader_epoch=1))) == ProposeClaim(2)


def test_a_clock_that_is_set_back_keeps_no_refused_claim_waiting() -> None:
    year_ms = 365 * 86_400_000
    standing = state(standing=claim(100, 1, OTHER_NODE))
    refused = RefusedClaim.now(2, standing, "SUSPECT", since_ms=NOW_MS, until_ms=NOW_MS + 600_000)
    facts = replace(FACTS, refused=refused, state=standing)
    assert stand_by(facts).why is WhyNot.CLAIM_REFUSED
    assert decide(replace(facts, now_ms=NOW_MS - year_ms)) == ProposeClaim(2)


def test_a_refused_claim_is_made_again_at_once_after_an_admins_reset() -> None:
    refused = RefusedClaim(2, 100, "SUSPECT: an admin must reset the claim", NOW_MS + 1)
    reset = state(voided=claim(100, 1, OTHER_NODE))
    assert decide(replace(FACTS, refused=refused, state=reset)) == ProposeClaim(2)


DELEGATED = replace(FACTS, wanted=Mode.DELEGATED)


def test_a_partition_that_the_broker_tiers_is_claimed_in_its_mode_or_before_it_has_one() -> None:
    assert decide(DELEGATED) == ProposeClaim(2)
    assert decide(replace(DELEGATED, state=state(mode=Mode.DELEGATED))) == ProposeClaim(2)
    only_gaps = replace(state(), gaps_allowed="cleaned", mode_offset=-1)
    assert decide(replace(DELEGATED, state=only_gaps)) == ProposeClaim(2)


@pytest.mark.parametrize("mode", [Mode.SIDECAR, Mode.READ_ONLY, Mode.PAUSED])
def test_the_broker_gets_no_partition_of_another_mode_until_an_admin_sets_it(mode: Mode) -> None:
    decision = stand_by(replace(DELEGATED, state=replace(state(mode=mode), mode_offset=7)))
    assert decision.why is WhyNot.MODE
    assert "sets the mode to delegated first" in decision.text


def test_the_broker_gets_no_partition_whose_older_part_only_the_tier_has() -> None:
    """Its remote log manager would delete all of that as lying below its log start."""
    tiered = replace(
        state(mode=Mode.DELEGATED, voided=claim(100, 1)),
        segment_count=3, log_start_offset=10, mode_offset=200,
    )  # fmt: skip
    decision = stand_by(replace(DELEGATED, state=tiered, broker_log_start=11))
    assert decision.why is WhyNot.MODE
    assert "read replica" in decision.text
    assert decide(replace(DELEGATED, state=tiered, broker_log_start=10)) == ProposeClaim(2)
    above = replace(DELEGATED, state=tiered, broker_log_start=11, tier_ends_below=lambda _: False)
    assert decide(above) == ProposeClaim(2), "it deletes whole segments"
    untold = replace(DELEGATED, state=tiered, broker_log_start=11, log_start_untold="it starts")
    assert stand_by(untold).why is WhyNot.BROKER_UNAVAILABLE
    assert "it starts" in stand_by(untold).text


def test_a_tier_without_a_log_start_is_the_brokers_own() -> None:
    """No node copies before one is recorded."""
    tiered = replace(
        state(mode=Mode.DELEGATED, voided=claim(100, 1)), segment_count=3, mode_offset=200,
        log_start_offset=-1,
    )  # fmt: skip
    assert decide(replace(DELEGATED, state=tiered, broker_log_start=11)) == ProposeClaim(2)


def test_the_brokers_own_retention_moves_its_log_start_past_what_it_copied() -> None:
    own = replace(
        state(mode=Mode.DELEGATED, standing=claim(100, 1)), segment_count=3, mode_offset=100
    )
    assert decide(replace(DELEGATED, state=own, broker_log_start=400)) == ProposeClaim(2)


def test_while_a_move_holds_delegated_partitions_none_of_them_is_claimed() -> None:
    held = StandBy(WhyNot.DELEGATED, "the move", cancel=True)
    facts = replace(FACTS, held=held)
    assert decide(facts) == ProposeClaim(2), "a partition that the node copies itself goes on"
    assert decide(replace(facts, wanted=Mode.DELEGATED)) == held
    assert decide(replace(facts, state=state(mode=Mode.DELEGATED))) == held
