"""A node that goes away for good: others end what it began."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

import sim.tier.world
from sim.tier.departed import Departed
from sim.tier.planted_in_departed import (
    BUGS_OF_DEPARTED,
    DEPARTED_EVENTS,
    DEPARTED_SEEDS_MAX,
    planted_in_departed,
)
from sim.tier.world import Plan, World, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

FRESH_SEEDS = 2
SOAK_SEEDS = 60
DEPARTED = Plan(departed=True)
TIERING = Plan(nodes=3, departed=True, delegated=True)
"""Brokers tier by themselves, and one goes amid the deletion of a topic."""
SEED = 8
HEAL_MS = 600_000


def test_others_end_what_a_node_began_that_went() -> None:
    held("tier", run, (1, *fresh(FRESH_SEEDS)), events=DEPARTED_EVENTS, plan=DEPARTED)


def test_a_node_goes_amid_the_deletion_of_a_topic() -> None:
    trace = list[str]()
    run(SEED, DEPARTED_EVENTS, plan=TIERING, trace=trace)
    went = next(at for at, line in enumerate(trace) if line.endswith("goes away for good"))
    name = trace[went].split()[1]
    assert not any(line.endswith(f"{name} is up") for line in trace[went:])
    assert any(" is deleted" in line for line in trace[:went])


def test_some_seeds_without_a_plan_have_one() -> None:
    worlds = (cast(World, SimpleNamespace(seed=seed)) for seed in range(1, 13))
    assert {Departed(world, is_on=None).is_on for world in worlds} == {True, False}


@pytest.mark.parametrize("name", BUGS_OF_DEPARTED)
def test_planted_mistakes_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.tier.world, "HEAL_MS", HEAL_MS)  # it never heals for this mistake
    found_in, seen_at = partial(run, plan=TIERING), SEEN_AT.get(name)
    run(SEED, DEPARTED_EVENTS, plan=TIERING)
    with planted_in_departed(name):
        assert_found(
            name, found_in, seeds=DEPARTED_SEEDS_MAX, events=DEPARTED_EVENTS, seen_at=seen_at
        )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_node_goes_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=DEPARTED)
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=TIERING)
