"""The metadata of all nodes is lost, and a new cluster begins with an older snapshot of it."""

from __future__ import annotations

from functools import partial

import pytest

from sim.tier.planted_bugs import EVENTS
from sim.tier.planted_in_disaster import (
    BUGS_OF_DISASTER,
    DISASTER_SEEDS_MAX,
    planted_in_disaster,
)
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

SEEDS = 3
FRESH_SEEDS = 2
SOAK_SEEDS = 40
BROKERS = frozenset({"elect", "slow_followers", "retention", "greedy_retention"})
DISASTER = Plan(
    nodes=3,
    topics=1,
    brokers=BROKERS,
    admins=frozenset({"retention_ms", "retention_bytes"}),
    damage=False,
    disaster=True,
)
ANY = Plan(
    brokers=BROKERS | {"broker_down", "transactions", "recreate", "delete_records"},
    damage=False,
    disaster=True,
)


def test_nothing_that_the_store_has_is_lost_with_the_metadata() -> None:
    results = held("tier", run, range(1, SEEDS + 1), events=EVENTS, plan=DISASTER)
    assert sum(result.struck for result in results) > 0
    held("tier", run, fresh(FRESH_SEEDS), events=EVENTS, plan=DISASTER)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_is_lost_with_the_metadata_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=ANY)


@pytest.mark.parametrize("name", BUGS_OF_DISASTER)
def test_a_planted_mistake_after_a_disaster_is_found(name: str) -> None:
    found_in, seen_at = partial(run, plan=DISASTER), SEEN_AT.get(name)
    with planted_in_disaster(name):
        assert_found(name, found_in, seeds=DISASTER_SEEDS_MAX, events=EVENTS, seen_at=seen_at)
