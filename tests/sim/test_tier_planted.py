"""The world of the remote log manager bites: planted mistakes are found."""

from __future__ import annotations

import pytest

from sim.invariants import InvariantError
from sim.tier.planted_bugs import (
    BUGS,
    BUGS_OF_DAMAGE,
    BUGS_OF_SCRIPTS,
    DAMAGED_SEEDS_MAX,
    EVENTS,
    RARE_BUGS,
    RARE_SEEDS_MAX,
    SEEDS_MAX,
    planted,
)
from sim.tier.scripts import play
from sim.tier.world import Plan, Result, run
from tests.sim.test_tier_scripts import SCRIPTS
from tests.sim.worlds import assert_found


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(name):
        assert_found(name, run, seeds=SEEDS_MAX, events=EVENTS)


@pytest.mark.parametrize("name", BUGS_OF_DAMAGE)
def test_a_planted_mistake_of_repairs_is_found(name: str) -> None:
    def damaged(seed: int, events: int) -> Result:
        return run(seed, events, plan=Plan(damage=True))

    with planted(name):
        assert_found(name, damaged, seeds=DAMAGED_SEEDS_MAX, events=EVENTS)


@pytest.mark.soak
@pytest.mark.parametrize("name", RARE_BUGS)
def test_a_planted_mistake_that_shows_seldom_is_found(name: str) -> None:
    with planted(name):
        assert_found(name, run, seeds=RARE_SEEDS_MAX, events=EVENTS)


@pytest.mark.parametrize("name", BUGS_OF_SCRIPTS)
def test_a_planted_mistake_makes_a_script_come_out_otherwise(name: str) -> None:
    (path,) = [each for each in SCRIPTS if each.stem == BUGS_OF_SCRIPTS[name][0]]
    text = path.read_text()
    with planted(name):
        try:
            found = play(text)
        except InvariantError as error:
            found = str(error)
    assert found != text
