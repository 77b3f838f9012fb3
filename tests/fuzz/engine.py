"""Feeds one parser hostile inputs and holds it to what it promises.

For each input: only the documented errors, whose text is one line of bounded length; an answer
within a bound of CPU time; and no more memory than the stated factor of the input's length.
A `BrokenPromiseError` names seed and number, and holds the whole input as hex.
"""

from __future__ import annotations

import random
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from kafka_formats.errors import CorruptData, StrandlineError
from tests.fuzz.mutation import Mutator, Repair

CPU_DEADLINE_S = 5.0
"""No input of 16 KiB takes a parser a hundredth of it; what reaches it would never end."""

MESSAGE_CHARACTERS_MAX = 1_000
KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table.

    `covers` names the functions that `run` reaches, as `module.function` or `module.Class.method`.
    `errors` is all that `run` may raise; empty where a parser answers None instead. It may allocate
    at most `factor` bytes a byte of input, and `constant_bytes` besides. `share` of the inputs of
    the quick run is what a slow one gets.
    """

    name: str
    covers: tuple[str, ...]
    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    errors: tuple[type[Exception], ...] = (CorruptData,)
    factor: int = 40
    constant_bytes: int = 64 * KIB
    repair: Repair | None = None
    share: float = 1.0


class BrokenPromiseError(AssertionError):
    """A parser broke a promise."""


class HangError(BaseException):
    """Raised in the middle of a parser that does not end; no `except Exception` takes it."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run saw: how many inputs were taken, and how many refused."""

    taken: int
    refused: int


def fuzz(target: Target, *, seed: int, count: int, first: int = 0) -> Tally:
    """Run inputs [first, first + count) of `seed`; the first broken promise is raised."""
    mutator = Mutator(target.seeds(), target.repair)
    taken = 0
    # Good inputs, before anything is measured: caches fill here.
    if not sum(_probe(target, data, "a seed") for data in target.seeds()):
        raise AssertionError(f"{target.name} takes none of its seeds: nothing deep is reached")
    with _traced(), _alarm():
        for number in range(first, first + count):
            source = random.Random(f"{seed} {target.name} {number}")
            data = mutator.make(source)
            taken += _measured(target, data, f"seed {seed}, input {number}")
    return Tally(taken, count - taken)


def _measured(target: Target, data: bytes, which: str) -> bool:
    """Run one input under the bounds; whether it was taken."""
    allowed = target.factor * len(data) + target.constant_bytes
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_DEADLINE_S)
    try:
        taken = _probe(target, data, which)
    except HangError:
        raise _broken(target, data, which, f"no end within {CPU_DEADLINE_S:g} s of CPU") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    peak = tracemalloc.get_traced_memory()[1] - before
    if peak > allowed:
        raise _broken(target, data, which, f"{peak} bytes allocated, {allowed} allowed")
    return taken


def _probe(target: Target, data: bytes, which: str) -> bool:
    try:
        target.run(data)
    except target.errors as error:
        text = str(error)
        if isinstance(error, StrandlineError) and not _is_line(text):
            raise _broken(target, data, which, f"a message of {len(text)} characters") from error
        return False
    except Exception as error:
        raise _broken(target, data, which, f"{type(error).__name__}: {str(error)[:200]}") from error
    except BaseException as error:  # a panic of a native library is no Exception
        if isinstance(error, HangError | KeyboardInterrupt):
            raise
        raise _broken(target, data, which, f"{type(error).__name__}: {str(error)[:200]}") from error
    return True


def _is_line(text: str) -> bool:
    """Whether a message can stand in a log: short, one line, and text that can be encoded."""
    return (
        len(text) <= MESSAGE_CHARACTERS_MAX
        and len(text.splitlines()) == 1
        and text.encode("utf-8", "replace").decode() == text
    )


def _broken(target: Target, data: bytes, which: str, why: str) -> BrokenPromiseError:
    return BrokenPromiseError(f"{target.name}, {which}: {why}; {len(data)} bytes: {data.hex()}")


@contextmanager
def _traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@contextmanager
def _alarm() -> Iterator[None]:
    """CPU time, not the clock: a busy machine must not look like a hang."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGVTALRM, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
