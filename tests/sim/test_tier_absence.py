"""Topics that no broker knows are marked for deletion, and not again once that was taken back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sim.tier.absence import Absences
from sim.tier.loop import the_dead_are_unheard
from sim.tier.planted_in_absence import (
    ABSENCE_EVENTS,
    ABSENCE_SEEDS_MAX,
    BUGS_OF_ABSENCE,
    planted_in_absence,
)
from sim.tier.world import Plan, World, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = (1, 2, 3, 4)
REACHED_MIN = 2
FRESH_SEEDS = 2
SOAK_SEEDS = 60
ABSENCE = Plan(absence=True)


def test_what_is_taken_back_is_not_marked_again(tmp_path: Path) -> None:
    reached = []
    for seed in SEEDS:
        path = tmp_path / str(seed)
        path.mkdir()
        with the_dead_are_unheard():
            world = World(seed, path, plan=ABSENCE)
            world.run(ABSENCE_EVENTS)
        found = world.absences
        reached.append((found.marked > 0, found.taken_back > 0, found.asked_again > 0))
    assert all(sum(each) >= REACHED_MIN for each in zip(*reached, strict=True)), reached


def test_seeds_that_nobody_chose_hold_as_well() -> None:
    held("tier", run, fresh(FRESH_SEEDS), events=ABSENCE_EVENTS, plan=ABSENCE)


def test_a_quarter_of_the_seeds_without_a_plan_has_it() -> None:
    calm = SimpleNamespace(is_on=False)
    worlds = (cast(World, SimpleNamespace(seed=each, disaster=calm)) for each in range(1, 101))
    assert 20 <= sum(Absences(world, None).is_on for world in worlds) <= 45


@pytest.mark.parametrize("name", BUGS_OF_ABSENCE)
def test_planted_mistakes_are_found(name: str) -> None:
    with planted_in_absence(name):
        found_in, seen_at = partial(run, plan=ABSENCE), SEEN_AT.get(name)
        assert_found(
            name, found_in, seeds=ABSENCE_SEEDS_MAX, events=ABSENCE_EVENTS, seen_at=seen_at
        )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_absence_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=ABSENCE)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_seed_that_failed_once_holds() -> None:
    # The nodes marked a topic, which was deleted then, for longer than a world lasts.
    held("tier", run, [1495632963], events=6_000)
