"""New leaders whose node does not know their log yet: nobody reads what an election cut."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sim.tier.first_looks import KINDS
from sim.tier.planted_in_looks import (
    BUGS_OF_LOOKS,
    LOOKS_EVENTS,
    LOOKS_SEEDS_MAX,
    planted_in_looks,
)
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

FRESH_SEEDS = 2
SOAK_SEEDS = 60
SOAK_EVENTS = 6_000
LOOKS = Plan(looks=True)
NOTHING: frozenset[str] = frozenset()
ALONE = Plan(
    nodes=2, topics=2, faults=NOTHING, brokers=NOTHING, admins=NOTHING, damage=False, looks=True
)
"""Nothing else happens."""


def test_nobody_reads_what_an_election_cut() -> None:
    results = held("tier", run, (1, *fresh(FRESH_SEEDS)), events=LOOKS_EVENTS, plan=LOOKS)
    assert sum(result.copied for result in results) > 0


def test_a_follower_that_lags_is_elected_and_its_log_is_not_known_at_once() -> None:
    trace = list[str]()
    assert run(2, LOOKS_EVENTS, plan=ALONE, trace=trace).consumed_bytes > 0
    assert any("elected unclean" in line for line in trace)
    told = [line for line in trace if line.endswith(" for a while")]
    assert [kind for kind in KINDS if not any(kind in line for line in told)] == ["late"]


def test_seeds_without_it_run_as_before() -> None:
    trace = list[str]()
    run(2, 200, plan=replace(ALONE, looks=False, delegated=True), trace=trace)
    assert not any(line.endswith(" for a while") for line in trace)


@pytest.mark.parametrize("name", BUGS_OF_LOOKS)
def test_a_planted_mistake_about_a_first_look_is_found(name: str) -> None:
    found_in, seen_at = partial(run, plan=ALONE), SEEN_AT.get(name)
    with planted_in_looks(name):
        assert_found(name, found_in, seeds=LOOKS_SEEDS_MAX, events=LOOKS_EVENTS, seen_at=seen_at)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_first_looks_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=SOAK_EVENTS, plan=LOOKS)
