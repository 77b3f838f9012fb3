"""Retention with a trash: nothing goes before its time, and what is taken back is there."""

from __future__ import annotations

from functools import partial

import pytest

from sim.tier.planted_bugs import EVENTS
from sim.tier.planted_in_trash import TRASH_BUGS, TRASH_SEEDS_MAX, planted_in_trash
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = (2, 4, 8, 11)
FRESH_SEEDS = 2
SOAK_SEEDS = 60
TRASH = Plan(nodes=3, topics=2, trash=True, admins=frozenset(), damage=False)
"""Policies, restores and all else that concerns a trash are its own admins'."""
LONGER = {"what all nodes measured counts from a mark's record on": 3_000}
"""Events of worlds that last until nodes record the time which they measured."""


def test_nothing_goes_before_its_time_and_in_the_end_the_trash_is_empty() -> None:
    seeds = (*SEEDS, *fresh(FRESH_SEEDS))
    results = held("tier", run, seeds, events=EVENTS, plan=TRASH)
    assert sum(result.restored for result in results) > 0
    assert sum(result.emptied for result in results) > 0
    assert sum(result.marks_cut for result in results) > 0
    assert sum(result.thrown_away for result in results) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_goes_before_its_time_over_many_seeds() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=EVENTS, plan=TRASH)
    held("tier", run, fresh(SOAK_SEEDS), events=EVENTS, plan=Plan(trash=True))


@pytest.mark.parametrize("name", TRASH_BUGS)
def test_planted_mistakes_are_found(name: str) -> None:
    found_in, seen_at = partial(run, plan=TRASH), SEEN_AT.get(name)
    events = LONGER.get(name, EVENTS)
    with planted_in_trash(name):
        assert_found(name, found_in, seeds=TRASH_SEEDS_MAX, events=events, seen_at=seen_at)
