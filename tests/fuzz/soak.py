"""The long run: many inputs for every parser, in blocks that worker processes take by turns.

Every parser gets its first block before any gets its second, so that a run that is cut short has
looked at all of them alike. What is done stands in a file of JSON lines, by which a run with the
same seed goes on. A broken promise ends its parser's blocks and nobody else's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from tests.fuzz.engine import BrokenPromiseError, Target, fuzz
from tests.fuzz.table import targets

BLOCK_INPUTS = 20_000
TRACED_EVERY = 16
"""Groups of inputs of which one has its allocations counted, see `engine`."""
BLOCKS_AHEAD = 4
"""Given out at once: enough that no process waits for the next."""


@dataclass(frozen=True, slots=True)
class Block:
    """Inputs [first, first + count) of `seed` for one parser."""

    seed: int
    name: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """How a block ended. `broken` is what the parser did against its promise."""

    block: Block
    taken: int = 0
    traced: int = 0
    cpu_s: float = 0.0
    broken: str | None = None


@dataclass
class Report:
    """What a run saw, by parser; the blocks that it goes on from are included."""

    inputs: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    traced: int = 0
    cpu_s: float = 0.0
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, done: Done) -> None:
        """Count a block; of a parser's broken promises the first one."""
        name = done.block.name
        if done.broken is not None:
            self.broken.setdefault(name, done.broken)
            return
        self.inputs[name] = self.inputs.get(name, 0) + done.block.count
        self.taken += done.taken
        self.traced += done.traced
        self.cpu_s += done.cpu_s

    def line(self, wanted: int) -> str:
        """Where the run is, of `wanted` inputs in all."""
        made = sum(self.inputs.values())
        return (
            f"{100 * made // wanted} %: {made:,} inputs for {len(self.inputs)} parsers, "
            f"{self.taken:,} taken, allocations of {self.traced:,} counted, "
            f"{self.cpu_s:,.0f} s of CPU, {len(self.broken)} broken promises"
        )


def blocks(
    names: Sequence[str], seed: int, inputs: int, block_inputs: int = BLOCK_INPUTS
) -> list[Block]:
    """All blocks of a run, in the order in which they are given out."""
    return [
        Block(seed, name, first, min(block_inputs, inputs - first))
        for first in range(0, inputs, block_inputs)
        for name in names
    ]


@cache
def _table() -> dict[str, Target]:
    return {target.name: target for target in targets()}


def run_block(block: Block, target: Target | None = None) -> Done:
    """Run it, in whichever process this is; `target` stands for the one of the table."""
    target = target or _table()[block.name]
    began_s = time.process_time()
    try:
        tally = fuzz(
            target,
            seed=block.seed,
            count=block.count,
            first=block.first,
            traced_every=TRACED_EVERY,
        )
    except BrokenPromiseError as error:
        return Done(block, broken=str(error))
    return Done(block, tally.taken, tally.traced, time.process_time() - began_s)


def soak(
    wanted: Sequence[Block],
    executor: Executor,
    *,
    progress: Callable[[str], None],
    done_file: Path | None = None,
    run: Callable[[Block], Done] = run_block,
) -> Report:
    """Run what of `wanted` is not in `done_file`; a line of progress for every hundredth of it."""
    report = Report()
    plan = set(wanted)
    before = [done for done in _read(done_file) if done.block in plan]
    for done in before:
        report.add(done)
    waiting = iter([block for block in wanted if block not in {done.block for done in before}])
    total = sum(block.count for block in wanted)
    under_way: dict[Future[Done], Block] = {}
    said = ""
    while True:
        for block in waiting:
            if block.name not in report.broken:
                under_way[executor.submit(run, block)] = block
            if len(under_way) >= BLOCKS_AHEAD:
                break
        if not under_way:
            return report
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            done = _result(future, under_way)
            del under_way[future]
            report.add(done)
            if done.broken is not None:
                progress(done.broken)
            elif done_file is not None:
                with done_file.open("a") as handle:
                    handle.write(json.dumps(asdict(done)) + "\n")
        line = report.line(total)
        if line.partition(":")[0] != said:
            said = line.partition(":")[0]
            progress(line)


def _result(future: Future[Done], under_way: dict[Future[Done], Block]) -> Done:
    try:
        return future.result()
    except BrokenProcessPool as error:  # a crash below Python takes all blocks with it
        blocks = "; ".join(map(str, under_way.values()))
        raise AssertionError(f"a process died in one of these blocks: {blocks}") from error


def _read(done_file: Path | None) -> list[Done]:
    if done_file is None or not done_file.exists():
        return []
    lines = (json.loads(line) for line in done_file.read_text().splitlines())
    return [Done(**(line | {"block": Block(**line["block"])})) for line in lines]
