"""Committed records of long ago, as files: the same records have the same effect for ever.

`python -m tests.rlmm.apply.recorded_history NAME SEED` records another history of the simulation.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path
from typing import Final

import pytest

from rlmm.metadata_log import CommittedRecord
from tests.rlmm.simulated_nodes import Simulation
from tests.rlmm.simulation_runs import set_small_limits

HISTORIES: Final = Path(__file__).parents[2] / "golden" / "apply"
SUFFIX: Final = ".jsonl.gz"
STEPS: Final = 500


def names() -> list[str]:
    """The histories that are there."""
    return sorted(path.name.removesuffix(SUFFIX) for path in HISTORIES.glob(f"*{SUFFIX}"))


def recorded(name: str) -> list[CommittedRecord]:
    """All records of a history, in order."""
    lines = gzip.decompress((HISTORIES / f"{name}{SUFFIX}").read_bytes()).splitlines()
    return [
        CommittedRecord(offset, epoch, timestamp_ms, control_type, base64.b64decode(value))
        for offset, epoch, timestamp_ms, control_type, value in map(json.loads, lines)
    ]


def record(name: str, seed: int) -> None:
    """A run of the simulation."""
    with pytest.MonkeyPatch.context() as patched:
        set_small_limits(patched)
        simulation = Simulation(seed)
        simulation.run(STEPS)
    lines = [
        json.dumps([*rest, base64.b64encode(value).decode()]) + "\n"
        for *rest, value in simulation.world.records
    ]
    data = gzip.compress("".join(lines).encode(), mtime=0)
    (HISTORIES / f"{name}{SUFFIX}").write_bytes(data)


if __name__ == "__main__":
    record(sys.argv[1], int(sys.argv[2]))
