"""Readers of committed records, and readers by name, see what Kafka's rules make of the logs."""

from __future__ import annotations

from functools import partial

import pytest

from sim.tier.planted_in_transactions import (
    BUGS_OF_CONSUMERS,
    BUGS_OF_NAMES,
    BUGS_OF_TRANSACTIONS,
    TRANSACTIONS_SEEDS_MAX,
    planted_in_transactions,
)
from sim.tier.world import Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.worlds import assert_found, fresh, held

FRESH_SEEDS = 2
SOAK_SEEDS = 60
EVENTS = 2_500
TRANSACTIONS = Plan(transactions=True)
TIERED = Plan(nodes=2, topics=1, transactions=True, delegated=True)
NAMES = Plan(brokers=frozenset({"recreate", "elect"}))
PLANS = {
    **dict.fromkeys(BUGS_OF_TRANSACTIONS, TRANSACTIONS),
    **dict.fromkeys(BUGS_OF_CONSUMERS, TIERED),
    **dict.fromkeys(BUGS_OF_NAMES, NAMES),
}


def test_what_is_decided_by_the_log_of_the_claims_is_what_readers_are_told() -> None:
    results = held("tier", run, (2, *fresh(FRESH_SEEDS)), events=EVENTS, plan=TRANSACTIONS)
    assert results[0].reads > 0


def test_some_seeds_without_a_plan_have_transactions() -> None:
    found = set()
    for seed in range(1, 9):
        trace = list[str]()
        run(seed, 300, trace=trace)
        found.add(any(" of producer " in line for line in trace))
    assert found == {True, False}


@pytest.mark.parametrize("name", PLANS)
def test_a_planted_mistake_about_what_readers_are_told_is_found(name: str) -> None:
    found_in, seen_at = partial(run, plan=PLANS[name]), SEEN_AT.get(name)
    with planted_in_transactions(name):
        assert_found(name, found_in, seeds=TRANSACTIONS_SEEDS_MAX, events=EVENTS, seen_at=seen_at)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_readers_of_committed_records_over_long_runs() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=TRANSACTIONS)
    held("tier", run, fresh(SOAK_SEEDS), events=6_000, plan=TIERED)
