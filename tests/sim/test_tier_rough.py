"""Brokers that tier at awkward moments: they lose nothing, and planted mistakes are found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sim.tier.planted_in_rough import BUGS_OF_ROUGH, ROUGH_EVENTS, ROUGH_SEEDS_MAX, planted
from sim.tier.rough import DEEDS
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

ROUGH = Plan(rough=True)
FRESH_SEEDS = 2
SOAK_SEEDS = 60
SOAK_EVENTS = 6_000
NOTHING: frozenset[str] = frozenset()
ALONE = Plan(nodes=2, topics=1, faults=NOTHING, brokers=NOTHING, admins=NOTHING, damage=False)
"""Nothing else happens."""
THERE_AND_BACK = frozenset({"there_and_back"})


def test_brokers_that_tier_at_awkward_moments_lose_nothing() -> None:
    results = held("tier", run, (1, *fresh(FRESH_SEEDS)), events=ROUGH_EVENTS, plan=ROUGH)
    assert sum(result.copied for result in results) > 0


def test_consumers_read_what_an_election_cut() -> None:
    plan, trace = replace(ALONE, rough=THERE_AND_BACK), list[str]()
    assert run(2, ROUGH_EVENTS, plan=plan, trace=trace).consumed_bytes > 0
    assert any("elected unclean" in line for line in trace)


def test_every_moment_can_be_asked_for() -> None:
    for deed in sorted(set(DEEDS)):
        held("tier", run, (1,), events=200, plan=replace(ALONE, rough=frozenset({deed})))


@pytest.mark.parametrize("name", BUGS_OF_ROUGH)
def test_a_planted_mistake_that_shows_at_an_awkward_moment_is_found(name: str) -> None:
    deeds, _ = BUGS_OF_ROUGH[name]
    found_in = partial(run, plan=replace(ALONE, rough=deeds))
    with planted(name):
        seen_at = SEEN_AT.get(name)
        assert_found(name, found_in, seeds=ROUGH_SEEDS_MAX, events=ROUGH_EVENTS, seen_at=seen_at)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_awkward_moments_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=SOAK_EVENTS, plan=ROUGH)
