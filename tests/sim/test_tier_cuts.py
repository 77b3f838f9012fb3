"""Cuts at the lower end of a log and into its holes, and leaders replaced while they record."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from sim.tier.lower_end_audit import SITUATIONS
from sim.tier.planted_in_cuts import BUGS_OF_CUTS, CUTS_SEEDS_MAX, planted_in_cuts
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = range(1, 14)
FRESH_SEEDS = 2
SOAK_SEEDS = 60
EVENTS = 2_000
CUTS = Plan(nodes=3, cuts=True)
FIRST_SEEDS = {"what was copied and cut off keeps no log start": 230}
"""Seeds from which on rarer mistakes are looked for."""


def test_every_invariant_holds_and_each_rare_situation_is_reached() -> None:
    """What is not reached is not checked: where one is missing, look at `sim/tier/cuts.py`."""
    results = held("tier", run, SEEDS, events=EVENTS, plan=CUTS)
    reached = Counter(name for result in results for name, _ in result.situations)
    assert [name for name in SITUATIONS if not reached[name]] == []


def test_cuts_in_seeds_that_nobody_chose() -> None:
    held("tier", run, fresh(FRESH_SEEDS), events=EVENTS, plan=CUTS)


def test_some_seeds_without_a_plan_have_cuts() -> None:
    reached = {run(seed, 300).situations != () for seed in range(1, 9)}
    assert reached == {True, False}


@pytest.mark.parametrize("name", BUGS_OF_CUTS)
def test_planted_mistakes_are_found(name: str) -> None:
    with planted_in_cuts(name):
        found_in, seen_at = partial(run, plan=CUTS), SEEN_AT.get(name)
        first = FIRST_SEEDS.get(name, 1)
        assert_found(
            name, found_in, seeds=CUTS_SEEDS_MAX, events=EVENTS, first=first, seen_at=seen_at
        )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_cuts_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=CUTS)
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=Plan(trash=True, cuts=True))
