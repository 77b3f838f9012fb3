"""Damaged segments go only where all that serve in their place are whole."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sim.tier.loop import the_dead_are_unheard
from sim.tier.planted_in_damaged_twice import (
    BUGS_OF_DAMAGED_TWICE,
    TWICE_EVENTS,
    TWICE_SEEDS_MAX,
    planted_in_damaged_twice,
)
from sim.tier.world import Plan, World, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found

SEEDS = (1, 3, 4)
DAMAGE = Plan(damage=True)


def test_repaired_segments_are_damaged_again(tmp_path: Path) -> None:
    reached = []
    for seed in SEEDS:
        path = tmp_path / str(seed)
        path.mkdir()
        with the_dead_are_unheard():
            world = World(seed, path, plan=DAMAGE)
            world.run(TWICE_EVENTS)
        twice = world.damage.twice
        reached.append((world.damage.repaired > 0, twice.harmed > 0, twice.judged > 0))
    assert [sum(each) >= 2 for each in zip(*reached, strict=True)] == [True] * 3, reached


@pytest.mark.parametrize("name", BUGS_OF_DAMAGED_TWICE)
def test_planted_mistakes_are_found(name: str) -> None:
    with planted_in_damaged_twice(name):
        found_in, seen_at = partial(run, plan=DAMAGE), SEEN_AT.get(name)
        assert_found(name, found_in, seeds=TWICE_SEEDS_MAX, events=TWICE_EVENTS, seen_at=seen_at)
