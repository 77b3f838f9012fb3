"""Where a new leader goes on; worked examples of Kafka's RemoteLogManagerTest
(FindHighestRemoteOffset*, FindLogStartOffset*), on states that records made.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import Conflict, Fenced, InvalidRequest
from rlm.fetch.leader_transition import (
    LeaderTransitionAnswer,
    LeaderTransitionQuery,
    answer_leader_transition,
)
from rlmm.apply import claims as apply_claims
from rlmm.apply.claim_forecast import forecast_claim
from rlmm.partition_state import Mode
from rlmm.rows import queries
from tests.rlmm.state_world import NODE_2, ORDERS, World, epochs

LOG_END = 1_000
QUERY = LeaderTransitionQuery(ORDERS, 2, epochs((0, 0), (1, 150), (2, 300)), 0, LOG_END)


def ask(query: LeaderTransitionQuery, world: World) -> LeaderTransitionAnswer:
    state = queries.partition_state(world.rows, ORDERS)
    left_overs = queries.left_overs(world.rows, ORDERS)
    forecast = forecast_claim(world.rows, query.as_claim())
    return answer_leader_transition(query, state, forecast, left_overs, 77)


@pytest.fixture
def led() -> World:
    """Epoch 0 copied to 200."""
    world = World()
    world.leads((0, 0))
    world.copy(1, 0, 200, ((0, 0),))
    return world


def test_an_unknown_partition_starts_at_the_local_log_start() -> None:
    answer = ask(replace(QUERY, local_log_start_offset=250), World())
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (-1, -1)
    assert answer.log_start_offset == answer.next_offset == 250
    assert answer.lineage == QUERY.checkpoint
    assert answer.claim is None
    assert answer.metadata_offset == 77


def test_a_new_leader_goes_on_after_the_highest_copied_offset_of_the_merged_lineage() -> None:
    world = World()
    world.leads((0, 0), (1, 150))
    world.copy(1, 0, 199, ((0, 0), (1, 150)))
    answer = ask(QUERY, world)
    assert (answer.highest_copied_offset, answer.next_offset) == (199, 200)
    assert answer.claim == world.state.claim


def test_an_unclean_election_takes_the_highest_copied_offset_back_to_the_cut(led: World) -> None:
    answer = ask(QUERY, led)
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (149, 0)
    assert answer.next_offset == answer.lineage_cut_at == 150


def test_a_cut_below_the_log_start_takes_the_log_start_back_as_well(led: World) -> None:
    led.log_start(180, 0)
    answer = ask(QUERY, led)
    assert answer.log_start_offset == answer.next_offset == 150


def test_a_log_that_is_shorter_than_what_is_copied_counts_to_its_end(led: World) -> None:
    query = replace(QUERY, leader_epoch=0, checkpoint=epochs((0, 0)), log_end_offset=80)
    answer = ask(query, led)
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (79, 0)
    empty = ask(replace(query, log_end_offset=0), led)
    assert (empty.highest_copied_offset, empty.highest_copied_epoch) == (-1, -1)


def test_the_head_that_local_retention_cut_from_the_checkpoint_is_kept() -> None:
    world = World()
    world.leads((0, 0), (1, 150))
    world.copy(1, 0, 299, ((0, 0), (1, 150)))
    answer = ask(replace(QUERY, checkpoint=epochs((2, 396)), local_log_start_offset=396), world)
    assert answer.lineage == epochs((0, 0), (1, 150), (2, 396))
    assert (answer.highest_copied_offset, answer.next_offset) == (299, 300)
    assert answer.log_start_offset == 0


def test_epochs_without_records_change_nothing(led: World) -> None:
    answer = ask(replace(QUERY, checkpoint=epochs((0, 0), (1, 201), (2, 201))), led)
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (200, 0)
    assert answer.next_offset == 201


def test_a_copied_epoch_that_the_leader_never_had_is_passed_over() -> None:
    """Epoch 1 was led elsewhere and lost by an unclean election: 150 on is copied anew."""
    world = World()
    world.leads((0, 0), (1, 150))
    world.copy(1, 0, 199, ((0, 0), (1, 150)))
    answer = ask(replace(QUERY, checkpoint=epochs((0, 0), (2, 180))), world)
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (149, 0)
    assert answer.next_offset == 150
    assert answer.lineage == epochs((0, 0), (2, 180))


def test_a_leader_whose_disk_begins_above_what_is_copied_takes_up_nothing_of_the_gap() -> None:
    """The offsets between what is copied and the disk are a LostRange's to record."""
    world = World()
    world.leads((0, 0))
    world.copy(1, 0, 200, ((0, 0),))
    query = replace(QUERY, checkpoint=epochs((2, 396)), local_log_start_offset=396)
    answer = ask(query, world)
    assert (answer.highest_copied_offset, answer.next_offset) == (200, 201)
    assert answer.log_start_offset == 0


def test_lost_ranges_are_passed_over(led: World) -> None:
    led.accept(led.a_lost_range(201, 249), led.a_lost_range(250, 259))
    assert ask(replace(QUERY, leader_epoch=0, checkpoint=epochs((0, 0))), led).next_offset == 260


def test_left_overs_are_handed_on(led: World) -> None:
    led.accept(led.an_add(2, 201, 249, ((0, 201),)))
    (row,) = ask(QUERY, led).left_overs
    assert row.start_offset == 201


def test_a_leader_whose_epoch_is_over_is_fenced() -> None:
    world = World()
    world.leads((3, 0))
    with pytest.raises(Fenced, match="node 1"):
        ask(QUERY, world)


def test_a_checkpoint_that_contradicts_the_lineage_is_refused_as_its_claim_would_be(
    led: World,
) -> None:
    led.claim((0, 0), (2, 100), node=NODE_2)
    with pytest.raises(InvalidRequest, match="contradict") as caught:
        ask(QUERY, led)
    assert caught.value.field == "leader_epoch_checkpoint"


def test_a_cut_that_an_admin_has_to_allow_is_told(
    led: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_claims, "LINEAGE_CUT_OFFSETS_MAX", 50)
    with pytest.raises(Conflict) as caught:
        ask(QUERY, led)
    assert caught.value.reason == "SUSPECT"


def test_a_partition_that_nobody_may_claim_now_is_answered_as_if_somebody_might(
    led: World,
) -> None:
    led.mode(Mode.PAUSED)
    assert ask(QUERY, led).next_offset == 150


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (replace(QUERY, leader_epoch=-1), "leader_epoch"),
        (replace(QUERY, leader_epoch=1), "leader_epoch_checkpoint"),
        (replace(QUERY, checkpoint=()), "leader_epoch_checkpoint"),
        (replace(QUERY, local_log_start_offset=-1), "local_log_start_offset"),
        (replace(QUERY, log_end_offset=0, local_log_start_offset=5), "log_end_offset"),
    ],
)
def test_a_query_that_no_broker_sends_names_the_field(
    query: LeaderTransitionQuery, field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(query, World())
    assert caught.value.field == field
