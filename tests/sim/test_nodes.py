"""Whole nodes in the seeded world: invariants, liveness, equal traces, planted mistakes."""

from __future__ import annotations

import pytest

from sim.nodes.planted_bugs import BUGS, EVENTS, FIRST_SEEDS, SEEDS_MAX, planted
from sim.nodes.world import run
from tests.sim.worlds import (
    assert_equal_traces,
    assert_found,
    assert_replayed,
    fresh,
    held,
)

SEEDS = 100
FRESH_SEEDS = 10
SEEDS_PER_TEST = 10
SOAK_SEEDS = range(1000, 3000, 50)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_invariant_holds_and_all_nodes_heal(first: int) -> None:
    results = held("nodes", run, range(first, first + SEEDS_PER_TEST), events=2000)
    assert sum(result.done for result in results) > 0


def test_seeds_that_nobody_chose_hold_as_well() -> None:
    held("nodes", run, fresh(FRESH_SEEDS), events=2000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", SOAK_SEEDS)
def test_every_invariant_holds_over_long_runs(first: int) -> None:
    held("nodes", run, range(first, first + SOAK_SEEDS.step), events=5000)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(name):
        first = FIRST_SEEDS.get(name, 1)
        assert_found(name, run, seeds=SEEDS_MAX, events=EVENTS, first=first)


def test_equal_seeds_give_equal_traces_whatever_the_hash_seed() -> None:
    assert_equal_traces("sim.nodes.world", 1000)


def test_the_command_line_replays_a_seed() -> None:
    assert_replayed()
