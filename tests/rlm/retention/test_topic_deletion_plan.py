from __future__ import annotations

from dataclasses import replace

import pytest

from rlm.retention.topic_deletion_plan import (
    DeletionStep,
    Finish,
    NotDeleted,
    RemoveSegments,
    Start,
    Wait,
    plan_deletion,
)
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS, PartitionState
from rlmm.segment import PartitionDeleteState
from tests.rlm.planner_facts import NOW_MS, claim, state

MARKED = replace(
    state(standing=claim(), delete_state=PartitionDeleteState.DELETE_PARTITION_MARKED),
    delete_offset=70,
    delete_marked_at_ms=NOW_MS,
    delete_grace_ms=1_000,
)
STARTED = replace(
    MARKED,
    claim=None,
    voided_claim=claim(),
    delete_state=PartitionDeleteState.DELETE_PARTITION_STARTED,
    delete_offset=80,
)
SETTLE_MS = 60
LAST_CLAIMANT, ANOTHER = 1, 2


def plan(
    of: PartitionState,
    passed_ms: int,
    *,
    node_id: int = LAST_CLAIMANT,
    has_segments: bool = True,
    held_back: str | None = None,
) -> DeletionStep:
    return plan_deletion(
        of,
        has_segments=has_segments,
        node_id=node_id,
        passed_ms=passed_ms,
        settle_ms=SETTLE_MS,
        held_back=held_back,
    )


def test_what_is_not_marked_is_not_deleted() -> None:
    assert plan(state(standing=claim()), 0) == NotDeleted()


@pytest.mark.parametrize(
    ("marked", "node_id", "from_ms"),
    [
        (MARKED, LAST_CLAIMANT, 1_000),
        (MARKED, ANOTHER, 1_060),
        (STARTED, LAST_CLAIMANT, 0),
        (STARTED, ANOTHER, 60),
    ],
)
def test_nobody_acts_within_the_grace_and_the_last_claimant_goes_first(
    marked: PartitionState, node_id: int, from_ms: int
) -> None:
    if from_ms:
        before = plan(marked, from_ms - 1, node_id=node_id)
        assert isinstance(before, Wait)
        assert before.for_ms == 1
    assert not isinstance(plan(marked, from_ms, node_id=node_id), Wait)


def test_nobody_goes_first_where_nobody_ever_claimed() -> None:
    unclaimed = replace(MARKED, claim=None)
    assert isinstance(plan(unclaimed, 1_000), Wait)
    assert plan(unclaimed, 1_060) == Start(70)


def test_a_mark_without_a_grace_has_the_default_one() -> None:
    marked = replace(MARKED, delete_grace_ms=-1)
    assert isinstance(plan(marked, DELETE_GRACE_DEFAULT_MS - 1), Wait)
    assert plan(marked, DELETE_GRACE_DEFAULT_MS) == Start(70)


def test_the_steps_follow_one_another() -> None:
    due_ms = 1_000
    assert plan(MARKED, due_ms) == Start(70)
    assert plan(MARKED, due_ms, has_segments=False) == Start(70)
    assert plan(STARTED, due_ms) == RemoveSegments()
    assert plan(STARTED, due_ms, has_segments=False) == Finish()


@pytest.mark.parametrize("marked", [MARKED, STARTED])
@pytest.mark.parametrize("has_segments", [True, False])
def test_what_holds_deletes_back_holds_every_step_back(
    marked: PartitionState, has_segments: bool
) -> None:
    step = plan(marked, 1_000, has_segments=has_segments, held_back="clocks differ")
    assert step == Wait(-1, "clocks differ")
