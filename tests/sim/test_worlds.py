"""Report of a seed that fails."""

from __future__ import annotations

import pytest

from sim.__main__ import planned
from sim.core import planted_bugs as core
from sim.nodes import planted_bugs as nodes
from sim.tier import planted_bugs as tier
from sim.tier import planted_in_absence as absence
from sim.tier import planted_in_building as building
from sim.tier import planted_in_cuts as cuts
from sim.tier import planted_in_damaged_twice as twice
from sim.tier import planted_in_delegated as delegated
from sim.tier import planted_in_departed as departed
from sim.tier import planted_in_disaster as disaster
from sim.tier import planted_in_holding as holding
from sim.tier import planted_in_late as late
from sim.tier import planted_in_looks as looks
from sim.tier import planted_in_rough as rough
from sim.tier import planted_in_scenes as scenes
from sim.tier import planted_in_transactions as transactions
from sim.tier import planted_in_trash as trash
from sim.tier.world import Plan
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import held


@pytest.mark.parametrize("error", [AssertionError("no leader"), KeyError("no leader")])
def test_a_seed_that_fails_is_named_with_the_command_that_replays_it(error: Exception) -> None:
    def run(seed: int, events: int) -> int:
        if seed == 8:
            raise error
        return seed * events

    assert held("core", run, range(5, 8), events=70) == [350, 420, 490]
    with pytest.raises(pytest.fail.Exception) as failed:
        held("core", run, range(5, 10), events=70)
    told = f"python -m sim --world core --seed 8 --events 70: {type(error).__name__} "
    assert str(failed.value).startswith(told)


def test_a_seed_of_a_plan_that_fails_is_named_with_the_plan() -> None:
    def run(seed: int, events: int, *, plan: Plan) -> int:
        raise AssertionError(f"{seed}, {events}, {plan.nodes}")

    plan = Plan(nodes=3, hold_bytes_max=-1, damage=False, following=True)
    with pytest.raises(pytest.fail.Exception) as failed:
        held("tier", run, [8], events=70, plan=plan)
    words = "nodes=3 hold_bytes_max=-1 damage=False following=True"
    told = (
        f"python -m sim --world tier --seed 8 --events 70 --plan {words}: AssertionError 8, 70, 3"
    )
    assert str(failed.value) == told
    assert planned(words.split()) == plan
    with pytest.raises(TypeError, match="node"):
        planned(["node=3"])


def test_seeds_are_known_for_mistakes_that_are_planted() -> None:
    tier_bugs = (
        *tier.BUGS,
        *tier.BUGS_OF_DAMAGE,
        *tier.BUGS_OF_FOLLOWING,
        *tier.BUGS_OF_HELD_DAMAGE,
        *tier.BUGS_OF_LOCAL_DAMAGE,
        *holding.BUGS_OF_QUIET,
        *delegated.BUGS_OF_DELEGATED,
        *trash.TRASH_BUGS,
        *building.BUGS_OF_BUILDING,
        *rough.BUGS_OF_ROUGH,
        *looks.BUGS_OF_LOOKS,
        *departed.BUGS_OF_DEPARTED,
        *late.BUGS_OF_LATE,
        *absence.BUGS_OF_ABSENCE,
        *twice.BUGS_OF_DAMAGED_TWICE,
        *cuts.BUGS_OF_CUTS,
        *disaster.BUGS_OF_DISASTER,
        *scenes.BUGS_OF_SCENES,
        *scenes.BUGS_OF_BROKER_SCENES,
        *transactions.BUGS_OF_TRANSACTIONS,
        *transactions.BUGS_OF_CONSUMERS,
        *transactions.BUGS_OF_NAMES,
    )
    assert SEEN_AT.keys() <= {*core.BUGS, *nodes.BUGS, *tier_bugs}
