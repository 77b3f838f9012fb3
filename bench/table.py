"""The table that every benchmark writes, with machine and versions.

A benchmark is a module of this folder with a `main`, run as `python -m bench.NAME`. It collects
samples, makes a `Measure` of each quantity, and calls `write_table`. Figures of different runs and
machines do not compare; so each run also measures what its own targets are ratios of.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of a table: a quantity and every sample of it, with the unit named.

    `target` is a text, empty where there is none; `met` says whether this run held it.
    """

    name: str
    unit: str
    samples: Sequence[float]
    target: str = ""
    met: bool | None = None


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample at or below which `percent` of all samples lie (nearest rank)."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def write_table(
    title: str,
    measures: Iterable[Measure],
    *,
    packages: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print the table as Markdown. `packages` are distributions whose versions matter here,
    `notes` anything a reader needs to judge the figures (tools' versions, sizes, what was cut).
    """
    print(f"## {title}\n")
    for line in (*machine(), *versions(packages), *notes):
        print(f"- {line}")
    print("\n| measure | unit | samples | min | median | max | target | held |")
    print("|---|---|---:|---:|---:|---:|---|---|")
    for each in measures:
        held = {None: "", True: "yes", False: "**no**"}[each.met]
        low, middle, high = min(each.samples), median(each.samples), max(each.samples)
        print(
            f"| {each.name} | {each.unit} | {len(each.samples)} | {_shown(low)} | "
            f"{_shown(middle)} | {_shown(high)} | {each.target} | {held} |"
        )
    print(flush=True)


def _shown(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine() -> list[str]:
    """The machine and how busy it was."""
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    loads = ", ".join(f"{load:.2f}" for load in os.getloadavg())
    return [
        f"machine: {_processor()}, {cores} cores, {memory_gib:.0f} GiB, {platform.system()} "
        f"{platform.release()}",
        f"load average over 1, 5, 15 minutes: {loads}",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def versions(packages: Sequence[str]) -> list[str]:
    """Python, this program's commit, and the named distributions."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    named = ", ".join(f"{package} {_version(package)}" for package in packages)
    line = f"versions: Python {platform.python_version()}, strandline {commit or 'unknown'}"
    return [f"{line}, {named}" if named else line]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
