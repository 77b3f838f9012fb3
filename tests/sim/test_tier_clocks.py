"""All clocks are set ahead together for a while: nothing is deleted before its time."""

from __future__ import annotations

from functools import partial

import pytest

from rlm.stores.clock_hold import ClockHold
from sim.tier.planted_bugs import EVENTS
from sim.tier.world import Plan, run
from tests.sim.worlds import assert_found, fresh, held

SEEDS = 3
FRESH_SEEDS = 1
SOAK_SEEDS = 30
PLANTED_SEEDS_MAX = 40
CLOCKS = Plan(clocks=True)
RESTARTS = Plan(
    nodes=2,
    topics=2,
    clocks=True,
    faults=frozenset({"crash"}),
    admins=frozenset({"retention_ms"}),
)


def test_nothing_is_deleted_before_its_time_and_all_is_tidy_in_the_end() -> None:
    for plan in (CLOCKS, RESTARTS):
        held("tier", run, (*range(1, SEEDS + 1), *fresh(FRESH_SEEDS)), events=EVENTS, plan=plan)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("plan", [CLOCKS, RESTARTS], ids=["clocks", "restarts"])
def test_nothing_is_deleted_before_its_time_over_many_seeds(plan: Plan) -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=EVENTS, plan=plan)


def test_clocks_that_are_believed_as_soon_as_they_agree_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted mistake: the comparison with the store alone decides."""
    monkeypatch.setattr(ClockHold, "text", lambda *_: None)
    found_in = partial(run, plan=CLOCKS)
    assert_found("no hold", found_in, seeds=PLANTED_SEEDS_MAX, events=EVENTS, seen_at=8)


def test_a_restart_that_forgets_the_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: a process that starts believes the clocks that agree."""
    monkeypatch.setattr(ClockHold, "_at_start", lambda _hold, apart_ms, _now_ms: apart_ms)
    found_in = partial(run, plan=RESTARTS)
    assert_found("forgotten", found_in, seeds=PLANTED_SEEDS_MAX, events=EVENTS, seen_at=3)
