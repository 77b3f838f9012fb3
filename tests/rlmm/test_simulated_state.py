"""Seeded simulations of nodes that write into one metadata log, checked after every event."""

from __future__ import annotations

import re

import pytest

from tests.rlmm.planted_state_bugs import PLANTED
from tests.rlmm.simulated_nodes import Simulation
from tests.rlmm.simulation_runs import seed_named, set_small_limits

STEPS = 250
SEEDS = range(34, 46)
SEEDS_MAX = 30
"""A planted bug is found within so many runs of `STEPS`, from the first of `SEEDS` on."""
LATE_SEEDS = {
    "holes of a cut are not recorded": 45,
    "holes of delegated mode are not recorded": 41,
    "a late head is never a cut": 56,
    "a copied lost range stays": 40,
    "a freed range is not refilled": 35,
    "no expected state": 52,
    "a grace counts for nothing": 62,
    "tombstones count for nothing": 48,
    "a step follows any mark": 35,
    "a copy may end one record outside the lineage": 42,
}
"""The seed that found a bug when it was last looked for is tried first: seconds less."""
SOAK_SEEDS = range(1000, 1300)
SOAK_STEPS = 800

# Verdicts that the seeds of the fast tier reach, by record: what is not reached is not checked.
REACHED = {
    "ClaimReset": {"ACCEPTED", "CONFLICT"},
    "LogStart": {"ACCEPTED", "NO_EFFECT", "FENCED", "CONFLICT", "GAP"},
    "LostRange": {"ACCEPTED", "FENCED", "CONFLICT"},
    "PartitionClaim": {"ACCEPTED", "FENCED", "CONFLICT", "GONE", "SUSPECT"},
    "PartitionDeleteUndo": {"ACCEPTED"},
    "PartitionModeChange": {"ACCEPTED"},
    "RemoteLogSegmentMetadata": {"ACCEPTED", "FENCED", "CONFLICT", "GONE"},
    "RemoteLogSegmentMetadataUpdate": {
        "ACCEPTED", "NO_EFFECT", "FENCED", "CONFLICT", "GONE", "DIVERGED", "GAP", "IN_USE"
    },
    "RemotePartitionDeleteMetadata": {"ACCEPTED", "CONFLICT"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


def test_the_invariants_hold_after_every_event() -> None:
    seen: set[str] = set()
    topics = 0
    for seed in SEEDS:
        simulation = Simulation(seed)
        with seed_named(seed):
            simulation.run(STEPS)
        seen |= simulation.seen
        topics += simulation.topics
    missing = {f"{record} {verdict}" for record, found in REACHED.items() for verdict in found}
    assert missing - seen == set()
    assert topics, "a partition was deleted to its end and created anew"


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, invariant = PLANTED[name]
    plant(monkeypatch)
    seeds = range(SEEDS.start, SEEDS.start + SEEDS_MAX)
    for seed in dict.fromkeys((LATE_SEEDS.get(name, SEEDS.start), *seeds)):
        found = broken_invariant(seed)
        if found is not None:
            assert re.match(invariant, found)
            return
    pytest.fail(f"not found within {SEEDS_MAX} seeds")


def broken_invariant(seed: int) -> str | None:
    try:
        Simulation(seed).run(STEPS)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_invariants_hold_for_long() -> None:
    for seed in SOAK_SEEDS:
        with seed_named(seed):
            Simulation(seed).run(SOAK_STEPS)
