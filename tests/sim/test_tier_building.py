"""What followers and new leaders are told of the tier is true, and a log can be built on it."""

from __future__ import annotations

from functools import partial

import pytest

from sim.tier.planted_bugs import EVENTS
from sim.tier.planted_in_building import (
    BUGS_OF_BUILDING,
    BUILDING_SEEDS_MAX,
    planted_in_building,
)
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = 2
FRESH_SEEDS = 2
SOAK_SEEDS = 40
BUILDING = Plan(building=True)
PLANTED = Plan(
    building=True,
    nodes=3,
    topics=1,
    brokers=frozenset({"elect", "unclean", "slow_followers", "retention", "greedy_retention"}),
    admins=frozenset(),
    damage=False,
)
"""Leaders whose logs differ, and who lose what was not copied."""


def test_followers_and_new_leaders_build_on_what_they_are_told() -> None:
    seeds = (*range(1, SEEDS + 1), *fresh(FRESH_SEEDS))
    results = held("tier", run, seeds, events=EVENTS, plan=BUILDING)
    assert sum(result.told for result in results) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_followers_and_new_leaders_over_long_runs() -> None:
    results = held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=BUILDING)
    assert sum(result.built for result in results) > 0


@pytest.mark.parametrize("name", BUGS_OF_BUILDING)
def test_a_planted_mistake_in_what_replicas_are_told_is_found(name: str) -> None:
    found_in, seen_at = partial(run, plan=PLANTED), SEEN_AT.get(name)
    with planted_in_building(name):
        assert_found(name, found_in, seeds=BUILDING_SEEDS_MAX, events=EVENTS, seen_at=seen_at)
