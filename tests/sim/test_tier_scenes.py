"""Scenes that lead to states which chance hardly ever hits."""

from __future__ import annotations

from functools import partial

import pytest

from sim.tier.planted_in_scenes import (
    BUGS_OF_SCENES,
    SCENES_EVENTS,
    SCENES_SEEDS_MAX,
    planted_in_scenes,
)
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

FRESH_SEEDS = 2
SOAK_SEEDS = 60
SOAK_EVENTS = 6_000
SCENES = Plan(scenes=True)
NOTHING: frozenset[str] = frozenset()
CALM = Plan(
    nodes=2, topics=2, faults=NOTHING, brokers=NOTHING, admins=NOTHING, damage=False, scenes=True
)
"""Nothing else happens."""


def test_every_invariant_holds() -> None:
    held("tier", run, (1, *fresh(FRESH_SEEDS)), events=SCENES_EVENTS, plan=SCENES)


def test_disks_drop_what_is_not_copied_and_leaders_come_back() -> None:
    trace = list[str]()
    run(1, SCENES_EVENTS, plan=CALM, trace=trace)
    assert any(" drops all below " in line for line in trace)
    assert any(" keeps what is above " in line for line in trace)
    assert any("elected unclean" in line for line in trace)


def test_some_seeds_without_a_plan_have_scenes() -> None:
    said = (" drops all below ", " keeps what is above ")
    found = set()
    for seed in range(1, 9):
        trace = list[str]()
        run(seed, 300, trace=trace)
        found.add(any(each in line for line in trace for each in said))
    assert found == {True, False}


@pytest.mark.parametrize("name", BUGS_OF_SCENES)
def test_planted_mistakes_are_found(name: str) -> None:
    found_in, seen_at = partial(run, plan=SCENES), SEEN_AT.get(name)
    with planted_in_scenes(name):
        assert_found(name, found_in, seeds=SCENES_SEEDS_MAX, events=SCENES_EVENTS, seen_at=seen_at)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_scenes_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=SOAK_EVENTS, plan=SCENES)
