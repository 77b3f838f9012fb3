"""Checks that all worlds share: seeds hold, mistakes are found, equal seeds run alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

import pytest

from sim.__main__ import SEED_MAX, WORLDS
from sim.tier.world import Plan

ROOT = Path(__file__).resolve().parents[2]

_Result = TypeVar("_Result")


def held(
    world: str,
    run: Callable[..., _Result],
    seeds: Iterable[int],
    *,
    events: int,
    plan: Plan | None = None,
) -> list[_Result]:
    """Results of the seeds; one that fails is named with the command that replays it."""
    assert world in WORLDS
    results = []
    for seed in seeds:
        try:
            results.append(run(seed, events) if plan is None else run(seed, events, plan=plan))
        except Exception as error:
            command = f"python -m sim --world {world} --seed {seed} --events {events}"
            command += "" if plan is None else f" --plan {plan}"
            pytest.fail(f"{command}: {type(error).__name__} {error}")
    return results


def fresh(seeds: int) -> range:
    """Seeds that nobody chose."""
    first = SystemRandom().randrange(SEED_MAX)
    return range(first, first + seeds)


def assert_found(
    name: str,
    run: Callable[[int, int], object],
    *,
    seeds: int,
    events: int,
    first: int = 1,
    seen_at: int | None = None,
) -> None:
    """One of `seeds` seeds from `first` on fails while the mistake `name` is planted. `seen_at` is
    tried before the others: it is the one of them that failed when somebody last looked.
    """
    among = range(first, first + seeds)
    for seed in (*(each for each in (seen_at,) if each in among), *among):
        try:
            run(seed, events)
        except AssertionError:
            return
    pytest.fail(f"{name}: not found in {seeds} seeds from {first} on")


def assert_equal_traces(module: str, events: int) -> None:
    """The traces of three seeds are the same under several hash seeds."""
    code = f"from {module} import run; print([run(s, {events}, trace=[]) for s in (3, 9, 12)])"
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


def assert_replayed(*arguments: str, expected: str = "AppendBatches") -> None:
    """The command line runs a seed and prints what happened."""
    command = [sys.executable, "-m", "sim", *arguments]
    command += ["--seed", "7", "--events", "500", "--trace"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Result(seed=7,")
    assert expected in done.stdout
