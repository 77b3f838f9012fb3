"""Where a new leader goes on; worked examples of Kafka's RemoteLogManagerTest
(FindHighestRemoteOffset*, FindLogStartOffset*).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import Fenced, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs
from rlm.leader_transition import (
    LeaderTransitionAnswer,
    LeaderTransitionQuery,
    answer_leader_transition,
    highest_copied,
)
from rlmm.partition_state import LostOffsets, PartitionState
from rlmm.segment import Incarnation, SegmentState
from tests.rlm.planner_facts import PARTITION, claim, epochs, segment_row, state, uuid

LOG_END = 1_000


@pytest.mark.parametrize(
    ("lineage", "highest", "expected"),
    [
        (epochs((0, 0), (1, 500)), {}, (-1, -1)),
        (epochs((0, 0), (1, 500)), {0: 200}, (200, 0)),
        (epochs((0, 0), (1, 150), (2, 300)), {0: 200}, (149, 0)),  # unclean leader election
        (epochs((0, 0), (1, 150), (2, 300)), {0: 100, 1: 299}, (299, 1)),
        (epochs((0, 0), (2, 150)), {1: 200}, (-1, -1)),  # epoch 1 never was in this lineage
    ],
)
def test_the_highest_copied_offset_is_found_downwards_in_the_lineage(
    lineage: Epochs, highest: dict[int, int], expected: tuple[int, int]
) -> None:
    assert highest_copied(lineage, LOG_END, highest.get) == expected


def test_a_log_that_was_truncated_below_what_is_copied_counts_to_its_end() -> None:
    assert highest_copied(epochs((0, 0)), 80, {0: 99}.get) == (79, 0)


QUERY = LeaderTransitionQuery(PARTITION, 2, epochs((0, 0), (1, 150), (2, 300)), 0, LOG_END)


def ask(
    query: LeaderTransitionQuery,
    partition_state: PartitionState | None,
    highest: dict[int, int] | None = None,
) -> LeaderTransitionAnswer:
    return answer_leader_transition(query, partition_state, (highest or {}).get, (), 77)


def test_an_unknown_partition_starts_at_the_local_log_start() -> None:
    answer = ask(replace(QUERY, local_log_start_offset=250), None)
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (-1, -1)
    assert answer.log_start_offset == answer.next_offset == 250
    assert answer.lineage == QUERY.checkpoint
    assert answer.metadata_offset == 77


def test_a_new_leader_goes_on_after_the_highest_copied_offset_of_the_merged_lineage() -> None:
    known = state(lineage=epochs((0, 0), (1, 150)), highest=(199, 1), standing=claim(50, 1))
    answer = ask(QUERY, known, {0: 149, 1: 199})
    assert (answer.highest_copied_offset, answer.next_offset) == (199, 200)
    assert answer.claim == claim(50, 1)


def test_an_unclean_election_takes_the_highest_copied_offset_back_to_the_cut() -> None:
    known = state(lineage=epochs((0, 0)), highest=(200, 0))
    answer = ask(QUERY, known, {0: 200})
    assert (answer.highest_copied_offset, answer.highest_copied_epoch) == (149, 0)
    assert answer.next_offset == answer.lineage_cut_at == 150


def test_a_cut_below_the_log_start_takes_the_log_start_back_as_well() -> None:
    known = state(lineage=epochs((0, 0)), log_start=180, highest=(200, 0))
    answer = ask(QUERY, known, {0: 200})
    assert answer.log_start_offset == answer.next_offset == 150


def test_the_head_that_local_retention_cut_from_the_checkpoint_is_kept() -> None:
    known = state(lineage=epochs((0, 0), (1, 150)), highest=(299, 1))
    query = replace(QUERY, checkpoint=epochs((2, 396)), local_log_start_offset=396)
    answer = ask(query, known, {0: 149, 1: 299})
    assert answer.lineage == epochs((0, 0), (1, 150), (2, 396))
    assert (answer.highest_copied_offset, answer.next_offset) == (299, 300)
    assert answer.log_start_offset == 0


def test_lost_ranges_are_passed_over() -> None:
    lost = (LostOffsets(200, 249, "gone"), LostOffsets(250, 259, "gone"))
    known = state(lineage=epochs((0, 0)), highest=(199, 0), lost=lost)
    query = replace(QUERY, leader_epoch=0, checkpoint=epochs((0, 0)))
    assert ask(query, known, {0: 199}).next_offset == 260


def test_left_overs_are_handed_on() -> None:
    row = segment_row(5, 200, 249, segment_state=SegmentState.COPY_SEGMENT_STARTED)
    answer = answer_leader_transition(QUERY, None, lambda _: None, [row], 1)
    assert answer.left_overs == (row,)


def test_a_leader_whose_epoch_is_over_is_fenced() -> None:
    other = Incarnation(4, uuid(4), 1)
    with pytest.raises(Fenced, match="node 4"):
        ask(QUERY, state(standing=claim(50, 3, other)))


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
        ask(query, None)
    assert caught.value.field == field
