"""The quorum core in all interleavings of small worlds: counts, equalities, planted mistakes."""

from __future__ import annotations

import pytest

from sim.core.planted_bugs import planted
from sim.explore.scenes import SCENES, blank
from sim.explore.space import Space
from sim.explore.states import Found, Scene, State

STATES = 12_000
STATES_IN_SOAK = 3_000_000


@pytest.mark.parametrize(
    ("budgets", "by_depth"),
    [
        # It leads at once: its first batch is written, and then synced.
        ({}, (1, 1, 0)),
        # Synced, or cut off with the batch or without it; each life writes a batch and syncs it.
        ({"crash": 1}, (1, 3, 3, 1, 0)),
        # The write waits for the first sync, or comes behind it, and is synced.
        ({"write": 1}, (1, 2, 1, 1, 0)),
    ],
)
def test_the_states_of_a_voter_alone_are_those_counted_by_hand(
    budgets: dict[str, int], by_depth: tuple[int, ...]
) -> None:
    found = Space(Scene(budgets, blank, nodes=1, voters=1)).search(1000)
    assert (found.by_depth, found.exhausted, found.broken) == (by_depth, True, None)


@pytest.mark.parametrize("scene", SCENES)
def test_steps_that_are_looked_up_lead_where_steps_lead_that_are_carried_out(scene: str) -> None:
    looked_up = Space(SCENES[scene]).search(400)
    carried_out = Space(SCENES[scene], remember=False).search(400)
    assert looked_up.by_depth == carried_out.by_depth
    assert looked_up.steps < carried_out.steps


class Unmerged(Space):
    """Visits states that differ in the names of hosts only, and counts those that do not."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.merged: set[int] = set()

    def mark(self, state: State) -> int:
        self.merged.add(super().mark(state))
        return hash(state)


def test_hosts_that_are_alike_are_not_told_apart_and_no_state_is_lost_by_it() -> None:
    scene = Scene({"late": 1, "tick": 1}, blank, nodes=2, voters=2, alike=(0, 1), epoch_max=1)
    unmerged = Unmerged(scene)
    every = unmerged.search(20_000)
    merged = Space(scene).search(20_000)
    assert every.exhausted
    assert merged.exhausted
    assert merged.states < every.states
    assert merged.states == len(unmerged.merged)


def searched(scene: str, states: int) -> Found:
    found = Space(SCENES[scene]).search(states)
    assert found.broken is None, "\n".join((*found.broken.moves, found.broken.message))
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_every_invariant_holds_in_the_first_states(scene: str) -> None:
    found = searched(scene, STATES)
    assert found.exhausted or found.states >= STATES


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_every_invariant_holds_in_some_millions_of_states(scene: str) -> None:
    found = searched(scene, STATES_IN_SOAK)
    assert found.exhausted or found.states >= STATES_IN_SOAK


@pytest.mark.parametrize(
    ("bug", "scene", "invariant"),
    [
        ("the leader counts what it has not synced", "led", "hw_is_durable"),
        ("the vote is not persisted", "blank", "persisted_first"),
        ("a restart forgets vote and leadership", "two voters", "vote_is_kept"),
    ],
)
def test_a_planted_mistake_is_found_with_its_schedule(bug: str, scene: str, invariant: str) -> None:
    with planted(bug):
        broken = Space(SCENES[scene]).search(STATES).broken
    assert broken is not None
    assert broken.name == invariant
    assert broken.moves
