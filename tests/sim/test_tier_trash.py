"""Retention with a trash: nothing goes before its time, and what is taken back is there."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from sim.tier.planted_bugs import EVENTS
from sim.tier.planted_in_trash import TRASH_BUGS, TRASH_SEEDS_MAX, planted_in_trash
from sim.tier.trash import Trash
from sim.tier.world import Plan, World, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = (2, 4, 8, 11)
FRESH_SEEDS = 2
SOAK_SEEDS = 60
PLAIN_EVENTS = 2_000
TRASH = Plan(nodes=3, topics=2, trash=True, admins=frozenset(), damage=False)
"""Policies, restores and all else that concerns a trash are its own admins'."""
LONGER = {
    "what all nodes measured counts from a mark's record on": 3_000,
    "a joined mark keeps the earlier time": 3_000,
}
"""Events of worlds that last until nodes record the time which they measured."""


def test_nothing_goes_before_its_time_and_in_the_end_the_trash_is_empty() -> None:
    seeds = (*SEEDS, *fresh(FRESH_SEEDS))
    results = held("tier", run, seeds, events=EVENTS, plan=TRASH)
    assert sum(result.restored for result in results) > 0
    assert sum(result.emptied for result in results) > 0
    assert sum(result.marks_cut for result in results) > 0
    assert sum(result.thrown_away for result in results) > 0


def test_a_quarter_of_the_seeds_without_a_plan_has_it() -> None:
    worlds = (cast(World, SimpleNamespace(seed=seed)) for seed in range(1, 41))
    have_it = [number for number, world in enumerate(worlds, 1) if Trash(world, None).is_on]
    assert 6 <= len(have_it) <= 14
    results = held("tier", run, have_it[:6], events=PLAIN_EVENTS)
    assert sum(result.restored > 0 for result in results) >= 2
    assert sum(result.emptied > 0 for result in results) >= 1
    assert sum(result.marks_cut > 0 for result in results) >= 2


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
