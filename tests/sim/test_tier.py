"""The remote log manager among brokers and stores: invariants, healing, equal traces."""

from __future__ import annotations

import pytest

from sim.tier.world import Plan, Result, run
from tests.sim.worlds import assert_equal_traces, assert_replayed, fresh, held

SEEDS = 20
FRESH_SEEDS = 6
SEEDS_PER_TEST = 10
EVENTS = 800
SOAK_SEEDS = range(1000, 4000, 50)
SOAK_EVENTS = 6000
FOLLOWING_SEEDS = 6
FOLLOWING_FRESH_SEEDS = 3
FOLLOWING_SOAK_SEEDS = 60


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_invariant_holds_and_all_is_copied_and_tidy_in_the_end(first: int) -> None:
    results = held("tier", run, range(first, first + SEEDS_PER_TEST), events=EVENTS)
    assert sum(result.copied for result in results) > 0
    assert sum(result.read_bytes for result in results) > 0


def test_seeds_that_nobody_chose_hold_as_well() -> None:
    held("tier", run, fresh(FRESH_SEEDS), events=EVENTS)


def following(seed: int, events: int) -> Result:
    """Topics whose tier follows DeleteRecords on the brokers."""
    return run(seed, events, plan=Plan(nodes=3, following=True))


def test_the_tier_follows_delete_records_and_nothing_else() -> None:
    results = held("tier", following, range(1, FOLLOWING_SEEDS + 1), events=EVENTS)
    results += held("tier", following, fresh(FOLLOWING_FRESH_SEEDS), events=EVENTS)
    assert sum(result.followed for result in results) >= len(results)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_tier_follows_delete_records_over_long_runs() -> None:
    held("tier", following, fresh(FOLLOWING_SOAK_SEEDS), events=SOAK_EVENTS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", SOAK_SEEDS)
def test_every_invariant_holds_over_long_runs(first: int) -> None:
    held("tier", run, range(first, first + SOAK_SEEDS.step), events=SOAK_EVENTS)


def test_equal_seeds_give_equal_traces_whatever_the_hash_seed() -> None:
    assert_equal_traces("sim.tier.world", 400)


def test_the_command_line_replays_a_seed() -> None:
    assert_replayed("--world", "tier", expected="COPY_SEGMENT_FINISHED")
