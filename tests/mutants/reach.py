"""Which tests run which line: each test of the packages in scope, once, under coverage.

`python -m tests.mutants.reach DATA FILE...` runs test files and writes their data; `reach` does so
for all, in processes of their own, and reads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import coverage
import pytest

UNIT = "not spark and not integration and not e2e and not soak"
FOLDERS = (
    *(f"tests/rlmm/{each}" for each in ("apply", "log", "quorum", "raft", "rows", "view")),
    *(f"tests/rlm/{each}" for each in ("copy", "data_plane", "delete", "retention")),
)
FILES = ("tests/rlmm/test_lineage.py",)
"""Where the rules in scope have their tests; what wider tests find, seeds do too, and sooner."""
OF_CONSTANTS = ("tests/rlmm/apply/test_limits.py", "tests/rlmm/raft/test_messages.py")
"""They read what a module has once it is imported, so they run none of its lines."""
PACKAGES = ("rlmm", "rlm")


@dataclass(frozen=True, slots=True)
class Reach:
    """`tests` that run a line, by file and line; `took_s` of each test."""

    tests: dict[tuple[str, int], frozenset[str]]
    took_s: dict[str, float]

    def of(self, path: str, line: int) -> list[str]:
        """The tests of a line, quickest first. A line that runs at import (a constant, a default)
        has those of its folder, and those of constants.
        """
        found = self.tests.get((path, line))
        if not found:
            folder = path.rpartition("/")[0]
            beside = (s for (p, _), s in self.tests.items() if p.rpartition("/")[0] == folder)
            found = frozenset(OF_CONSTANTS).union(*beside)
        return sorted(found, key=lambda test: self.took_s.get(test, 0.0))


def reach(root: Path, data: Path, processes: int) -> Reach:
    """Run all tests in scope, `processes` at once, or read what is in the folder `data`."""
    data.mkdir(parents=True, exist_ok=True)
    below = (each for f in FOLDERS for each in (root / f).rglob("test_*.py"))
    files = sorted((*FILES, *(str(each.relative_to(root)) for each in below)))
    shares = [files[number::processes] for number in range(processes)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.reach", str(data / str(number)), *share], cwd=root
        )
        for number, share in enumerate(shares)
        if not (data / f"{number}.json").exists()
    ]
    if any(process.wait() not in (0, pytest.ExitCode.NO_TESTS_COLLECTED) for process in running):
        raise SystemExit("mutants: a test fails without any mutant: mend that first")
    tests: dict[tuple[str, int], set[str]] = {}
    took_s: dict[str, float] = {}
    for number in range(processes):
        took_s |= json.loads((data / f"{number}.json").read_text())
        found = coverage.CoverageData(basename=str(data / f"{number}.coverage"))
        found.read()
        for file in found.measured_files():
            path = str(Path(file).relative_to(root))
            for line, contexts in found.contexts_by_lineno(file).items():
                tests.setdefault((path, line), set()).update(filter(None, contexts))
    return Reach({place: frozenset(names) for place, names in tests.items()}, took_s)


class _PerTest:
    """Tells coverage which test runs, and times it."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.took_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._measured.switch_context(item.nodeid)
        began = perf_counter()
        try:
            return (yield)
        finally:
            self.took_s[item.nodeid] = perf_counter() - began
            self._measured.switch_context("")


def _main(data: str, files: Sequence[str]) -> int:
    measured = coverage.Coverage(
        data_file=f"{data}.coverage", source=list(PACKAGES), config_file=False
    )
    measured.start()
    plugin = _PerTest(measured)
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", UNIT, *files], plugins=[plugin])
    measured.stop()
    measured.save()
    Path(f"{data}.json").write_text(json.dumps(plugin.took_s))
    return int(code)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], sys.argv[2:]))
