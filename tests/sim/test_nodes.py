"""Whole nodes in the seeded world: invariants, liveness, equal traces, planted mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from sim.nodes.planted_bugs import BUGS, EVENTS, SEEDS_MAX, planted
from sim.nodes.world import run

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 100
FRESH_SEEDS = 10
SEEDS_PER_TEST = 10
SOAK_SEEDS = range(1000, 3000, 50)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_invariant_holds_and_all_nodes_heal(first: int) -> None:
    results = [run(seed, 2000) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(result.done for result in results) > 0


def test_seeds_that_nobody_chose_hold_as_well() -> None:
    first = SystemRandom().randrange(1 << 31)
    for seed in range(first, first + FRESH_SEEDS):
        try:
            run(seed, 2000)
        except AssertionError as error:
            pytest.fail(f"python -m sim --seed {seed} --events 2000: {error}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", SOAK_SEEDS)
def test_every_invariant_holds_over_long_runs(first: int) -> None:
    for seed in range(first, first + SOAK_SEEDS.step):
        run(seed, 5000)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(name):
        for seed in range(1, SEEDS_MAX + 1):
            try:
                run(seed, EVENTS)
            except AssertionError:
                return
    pytest.fail(f"{name}: not found in {SEEDS_MAX} seeds")


def test_equal_seeds_give_equal_traces_whatever_the_hash_seed() -> None:
    code = "from sim.nodes.world import run; print([run(s, 1000, trace=[]) for s in (3, 9, 12)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert "trace=0" not in outputs.pop()


def test_the_command_line_replays_a_seed() -> None:
    command = [sys.executable, "-m", "sim", "--seed", "7", "--events", "500", "--trace"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Result(seed=7,")
    assert "AppendBatches" in done.stdout
