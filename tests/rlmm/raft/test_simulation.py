"""The quorum core in the seeded world: invariants, liveness, equal traces, planted mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.planted_bugs import BUGS, EVENTS, SEEDS_MAX, planted
from sim.quorum import run

ROOT = Path(__file__).resolve().parents[3]
SEEDS = 100
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_invariant_holds_and_the_quorum_heals(first: int) -> None:
    results = [run(seed, 3000) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(result.committed for result in results) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_every_invariant_holds_over_long_runs(first: int) -> None:
    for seed in range(first, first + 100):
        run(seed, 6000)


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
    code = "from sim.quorum import run; print([run(s, 1500, trace=[]) for s in (3, 9, 12)])"
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
    arguments = ["--world", "core", "--seed", "7", "--events", "500", "--trace"]
    command = [sys.executable, "-m", "sim", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Result(seed=7,")
    assert "AppendBatches" in done.stdout
