"""Every parser with 10^6 inputs, which `make soak` runs, and whether such a run keeps its book."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fuzz.engine import Target
from tests.fuzz.soak import Block, Done, Report, blocks, run_block, soak
from tests.fuzz.table import targets

INPUTS = int(os.environ.get("FUZZ_INPUTS", "1000000"))
PROCESSES = int(os.environ.get("FUZZ_PROCESSES", "2"))


@pytest.mark.soak
@pytest.mark.timeout(12 * 3600)
def test_a_million_hostile_inputs_for_every_parser(capsys: pytest.CaptureFixture[str]) -> None:
    """Half an hour of CPU. FUZZ_SEED repeats a seed, FUZZ_INPUTS shortens, FUZZ_PROCESSES work
    on it, and with a file FUZZ_DONE a run of the same seed goes on where it stopped. (Variables
    that begin with STRANDLINE_ are a node's, which refuses those it does not know.)
    """
    seed = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    done_file = os.environ.get("FUZZ_DONE")
    wanted = blocks([target.name for target in targets()], seed, INPUTS)

    def progress(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    progress(f"\nFUZZ_SEED={seed}")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context) as pool:
        report = soak(
            wanted, pool, progress=progress, done_file=Path(done_file) if done_file else None
        )
    assert report.broken == {}
    assert set(report.inputs.values()) == {INPUTS}


class AtOnce(Executor):
    """Runs what is submitted, here and now."""

    def submit(  # type: ignore[override]  # the one shape that is used
        self, run: Callable[[Block], Done], block: Block
    ) -> Future[Done]:
        future: Future[Done] = Future()
        try:
            future.set_result(run(block))
        except BrokenProcessPool as error:
            future.set_exception(error)
        return future


NAMES = ["a", "b", "c"]
PLAN = blocks(NAMES, seed=7, inputs=50, block_inputs=20)


@dataclass
class Noted:
    """As if all inputs had been taken; which blocks ran, until one too many does."""

    most: int = len(PLAN)
    ran: list[Block] = field(default_factory=list)

    def __call__(self, block: Block) -> Done:
        if len(self.ran) == self.most:
            raise KeyboardInterrupt
        self.ran.append(block)
        return Done(block, taken=block.count, traced=1, cpu_s=1.0)


def test_every_parser_gets_all_its_inputs_and_none_waits_for_another() -> None:
    noted, lines = Noted(), list[str]()
    report = soak(PLAN, AtOnce(), progress=lines.append, run=noted)
    assert [(block.name, block.first, block.count) for block in noted.ran] == [
        (name, first, count) for first, count in ((0, 20), (20, 20), (40, 10)) for name in NAMES
    ]
    assert (report.inputs, report.taken, report.cpu_s) == (dict.fromkeys(NAMES, 50), 150, 9.0)
    assert report.traced == len(PLAN)
    assert lines[-1] == (
        "100 %: 150 inputs for 3 parsers, 150 taken, allocations of 9 counted, 9 s of CPU, "
        "0 broken promises"
    )


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    book = tmp_path / "done"

    def go_on(plan: list[Block], noted: Noted) -> Report:
        return soak(plan, AtOnce(), progress=lambda line: None, done_file=book, run=noted)

    with pytest.raises(KeyboardInterrupt):
        go_on(PLAN, Noted(most=5))
    finished = len(book.read_text().splitlines())
    assert 0 < finished <= 5
    rest = Noted()
    report = go_on(PLAN, rest)
    assert rest.ran == PLAN[finished:]
    assert report.inputs == dict.fromkeys(NAMES, 50)
    assert go_on(PLAN, Noted(most=0)) == report  # nothing is left
    other, all_of_it = blocks(NAMES, seed=8, inputs=50, block_inputs=20), Noted()
    assert go_on(other, all_of_it).inputs == dict.fromkeys(NAMES, 50)
    assert all_of_it.ran == other


def test_a_broken_promise_ends_its_parser_and_no_other(tmp_path: Path) -> None:
    def refuse(data: bytes) -> None:
        if data and data[0] == 0xFF:
            raise KeyError(0xFF)

    planted = {
        "a": Target("a", (), len, lambda: [b"seed"], errors=()),
        "b": Target("b", (), refuse, lambda: [b"seed"], errors=()),
    }
    plan = blocks(["b", "a"], seed=1, inputs=4_000, block_inputs=1_000)
    said: list[str] = []
    for _ in range(2):  # what was broken is not in the book: it is found again
        report = soak(
            plan,
            AtOnce(),
            progress=said.append,
            done_file=tmp_path / "done",
            run=lambda block: run_block(block, planted[block.name]),
        )
        assert set(report.broken) == {"b"}
        assert report.broken["b"] in said
        assert "b, seed 1, input" in report.broken["b"]
        assert "KeyError" in report.broken["b"]
        assert report.inputs["a"] == 4_000


def test_a_process_that_dies_names_the_blocks_it_may_have_died_of() -> None:
    def die(block: Block) -> Done:
        raise BrokenProcessPool

    with pytest.raises(AssertionError, match=r"Block\(seed=7, name='a', first=0, count=20\)"):
        soak(PLAN, AtOnce(), progress=lambda line: None, run=die)
