"""Uploads that arrive behind a delete, and readers of what is marked meanwhile."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sim.tier.late import Late
from sim.tier.loop import the_dead_are_unheard
from sim.tier.planted_in_late import BUGS_OF_LATE, LATE_EVENTS, LATE_SEEDS_MAX, planted_in_late
from sim.tier.world import Plan, World, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = (3, 5)
FRESH_SEEDS = 2
SOAK_SEEDS = 60
LATE = Plan(late=True)


def test_nothing_is_left_over_and_readers_have_their_time() -> None:
    results = held("tier", run, (*SEEDS, *fresh(FRESH_SEEDS)), events=LATE_EVENTS, plan=LATE)
    assert sum(result.deleted for result in results) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_uploads_arrive_behind_a_delete_and_readers_ask_for_what_is_marked(
    seed: int, tmp_path: Path
) -> None:
    with the_dead_are_unheard():
        world = World(seed, tmp_path, plan=LATE)
        world.run(LATE_EVENTS)
    assert world.late.hung > 0
    assert world.late.outlived > 0


def test_some_seeds_without_a_plan_have_it() -> None:
    worlds = (cast(World, SimpleNamespace(seed=seed)) for seed in range(1, 13))
    assert {Late(world, is_on=None).is_on for world in worlds} == {True, False}


@pytest.mark.parametrize("name", BUGS_OF_LATE)
def test_planted_mistakes_are_found(name: str) -> None:
    with planted_in_late(name):
        found_in, seen_at = partial(run, plan=LATE), SEEN_AT.get(name)
        assert_found(name, found_in, seeds=LATE_SEEDS_MAX, events=LATE_EVENTS, seen_at=seen_at)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_what_is_late_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=LATE)
