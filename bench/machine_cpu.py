"""CPU time of the whole machine, for work that is spread over processes: run nothing beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4)  # idle, iowait


def cpu_seconds() -> float:
    """All cores together, since the machine started (proc(5), /proc/stat)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = sum(ticks for at, ticks in enumerate(fields) if at not in _IDLE_FIELDS)
    return busy * _SECONDS_PER_TICK


def cpu_seconds_of(work: Callable[[], float]) -> tuple[float, float]:
    """The result of `work`, and the CPU time that passed meanwhile."""
    began = cpu_seconds()
    found = work()
    return found, cpu_seconds() - began
