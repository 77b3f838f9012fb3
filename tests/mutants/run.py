"""`make mutants` (SAMPLE=200 SEED=1): are mistakes in the code noticed?

Each mutant runs the tests that run its line, quickest first; one that passes them runs 20 seeds of
the simulation. What is found is kept in `docs/notes/mutants.tsv` after each, so a run that was
ended goes on where it was; a mutant is run anew once its file has changed. A survivor is read by a
person, who adds a test, or writes `equal: why` into its last column.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from rich.progress import track

from tests.mutants.mutations import Mutant, mutants, sample
from tests.mutants.reach import Reach, reach

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "notes" / "mutants.tsv"
REACH = ROOT / ".mutants"
SEEDS = 20
EVENTS = 6_000
TESTS_S_MAX = 60.0
"""Longest time that a mutant's tests take by the clock when nothing is wrong; slower ones are left
to the seeds."""
DEADLINE_S = 300
OF_MUTANT = ("path", "definition", "operator", "occurrence", "line", "text", "file_hash")
COLUMNS = (*OF_MUTANT, "verdict", "by", "read")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`killed`, `hung` or `survived`, and by what."""

    verdict: str
    by: str


def main() -> int:
    """0 where every mutant was noticed, or was read and is equal."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: make mutants SAMPLE=200 SEED=7"
    )
    parser.add_argument("--sample", type=int, default=200, help="how many; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    every = list(mutants(ROOT))
    drawn = sample(every, chosen.sample or len(every), chosen.seed)
    kept = _kept()
    left = [each for each in drawn if _key(each) not in kept]
    print(f"{len(every)} mutants, {len(drawn)} drawn, {len(left)} not run yet", flush=True)
    if left:
        _run(left, chosen.processes, kept)
    return _told([kept[_key(each)] for each in drawn])


def _run(left: list[Mutant], processes: int, kept: dict[tuple[str, ...], dict[str, str]]) -> None:
    with tempfile.TemporaryDirectory(prefix="strandline-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(processes):
            trees.put(_copy(Path(folder) / str(number)))
        first = trees.get()
        reached = reach(first, REACH / _tree_hash(), processes)
        trees.put(first)
        with ThreadPoolExecutor(processes) as pool:
            running = {pool.submit(_judge, each, trees, reached): each for each in left}
            for done in track(as_completed(running), "mutants", total=len(left)):
                mutant, verdict = running[done], done.result()
                _note(mutant, verdict, kept)
                _keep(kept)


def _tree_hash() -> str:
    """Of all that decides which test runs which line."""
    found = hashlib.sha256()
    for path in sorted(
        each for name in ("rlm", "rlmm", "tests") for each in (ROOT / name).rglob("*.py")
    ):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _copy(target: Path) -> Path:
    """A tree of its own: the files of this one, and what was compiled."""
    listed = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    compiled = [str(each.relative_to(ROOT)) for each in ROOT.glob("[!.]*/**/*.so")]
    for name in filter(None, [*listed, *compiled]):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    return target


def _judge(mutant: Mutant, trees: SimpleQueue[Path], reached: Reach) -> Verdict:
    tree = trees.get()
    file = tree / mutant.path
    right = file.read_text()
    try:
        file.write_text(mutant.code(tree))
        for by, command in _commands(mutant, tree, reached):
            try:
                ended = subprocess.run(
                    command,
                    cwd=tree,
                    capture_output=True,
                    timeout=DEADLINE_S,
                    text=True,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Verdict("hung", by)
            if ended.returncode:
                return Verdict("killed", _first_failure(ended.stdout) or by)
        return Verdict("survived", "")
    finally:
        file.write_text(right)
        trees.put(tree)


def _commands(mutant: Mutant, tree: Path, reached: Reach) -> Iterator[tuple[str, list[str]]]:
    tests, took_s = [], 0.0
    for test in reached.of(mutant.path, mutant.line):
        took_s += reached.took_s.get(test, 0.0)
        if took_s > TESTS_S_MAX:
            break
        tests.append(test)
    if tests:
        listed = tree / "tests-of-mutant.txt"
        listed.write_text("\n".join(tests))
        options = ["-q", "-x", "-p", "no:cacheprovider", "--tb=no", f"--basetemp={tree}/tmp"]
        yield "tests", [sys.executable, "-m", "pytest", *options, f"@{listed}"]
    world = "core" if mutant.path.startswith("rlmm/raft") else "nodes"
    world = world if mutant.path.startswith("rlmm/") else "tier"
    seeds = ["--seeds", str(SEEDS), "--events", str(EVENTS)]
    yield f"seeds of {world}", [sys.executable, "-m", "sim", "--world", world, *seeds]


def _first_failure(output: str) -> str:
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ", "seed ")):
            return line.removeprefix("FAILED ").removeprefix("ERROR ").split(" - ")[0][:160]
    return ""


def _key(mutant: Mutant) -> tuple[str, ...]:
    return (mutant.path, mutant.operator, str(mutant.occurrence), mutant.file_hash)


def _kept() -> dict[tuple[str, ...], dict[str, str]]:
    if not KEPT.exists():
        return {}
    with KEPT.open(newline="") as file:
        rows = list(csv.DictReader(file, COLUMNS, dialect="excel-tab"))[1:]
    return {(r["path"], r["operator"], r["occurrence"], r["file_hash"]): r for r in rows}


def _note(mutant: Mutant, verdict: Verdict, kept: dict[tuple[str, ...], dict[str, str]]) -> None:
    """The mutant's row. What was read of the same change of an earlier file stays; its row goes."""
    row = {name: str(getattr(mutant, name)) for name in OF_MUTANT}
    read = ""
    for key, known in [*kept.items()]:
        same = all(known[name] == row[name] for name in ("path", "definition", "operator", "text"))
        if same and known["file_hash"] != mutant.file_hash:
            read = read or known["read"]
            del kept[key]
    read = read if verdict.verdict == "survived" else ""
    kept[_key(mutant)] = row | {"verdict": verdict.verdict, "by": verdict.by, "read": read}


def _keep(kept: dict[tuple[str, ...], dict[str, str]]) -> None:
    """All rows, in order, in one step."""
    rows = sorted(kept.values(), key=lambda row: (row["path"], int(row["line"]), row["operator"]))
    written = KEPT.with_suffix(".part")
    with written.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, dialect="excel-tab", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    written.replace(KEPT)


def _told(rows: list[dict[str, str]]) -> int:
    equal = [row for row in rows if row["read"].startswith("equal")]
    open_ = [row for row in rows if row["verdict"] == "survived" and row not in equal]
    counts = Counter(row["verdict"] for row in rows)
    noticed = counts["killed"] + counts["hung"]
    share = noticed / max(1, noticed + len(open_))
    print(f"noticed {noticed} ({counts['hung']} hung), equal {len(equal)}, not {len(open_)}")
    print(f"of those that are not equal: {share:.1%}")
    for row in open_:
        print(f"  {row['path']}:{row['line']} {row['definition']} {row['operator']}: {row['text']}")
    return 1 if open_ else 0


if __name__ == "__main__":
    sys.exit(main())
