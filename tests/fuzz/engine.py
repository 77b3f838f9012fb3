"""Feeds one parser hostile inputs and holds it to what it promises.

For each input: only the documented errors, whose text is one line of bounded length; an answer
within a bound of CPU time; and no more memory than the stated factor of the input's length.
A `BrokenPromiseError` names seed and number, and holds the whole input as hex.

Python's own account of memory makes a parser about six times slower. The long run therefore keeps
it for one group of inputs in `traced_every`; in the others an allocation that is far over the bound
finds no address space.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from kafka_formats.errors import CorruptData, StrandlineError
from tests.fuzz.mutation import GROUP_INPUTS, INPUT_BYTES_MAX, Mutator, Repair

CPU_DEADLINE_S = 5.0
"""No input of 16 KiB takes a parser a hundredth of it; what reaches it would never end. Noticed
between one and two of it."""

MESSAGE_CHARACTERS_MAX = 1_000
KIB = 1 << 10
ARENAS_MAX = 8 * (os.cpu_count() or 1) + 1
"""Of glibc's allocator, on 64 bits."""
_LIBC = ctypes.CDLL(None)
_MALLOC = _LIBC.malloc
_MALLOC.argtypes, _MALLOC.restype = [ctypes.c_size_t], ctypes.c_void_p
UNTRACED_SLACK_BYTES = 32 << 20
"""What an untraced parser may take over its bound: allocators take more than they are asked for."""


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
    """What a run saw: inputs taken, inputs refused, and how many of both had each byte counted."""

    taken: int
    refused: int
    traced: int


def fuzz(target: Target, *, seed: int, count: int, first: int = 0, traced_every: int = 1) -> Tally:
    """Run inputs [first, first + count) of `seed`; the first broken promise is raised.

    Of `traced_every` groups of inputs one has its allocations counted, the first one always.
    """
    seeds = target.seeds()
    mutator = Mutator(seeds, target.repair)
    # Good inputs, before anything is measured: caches fill here.
    if not sum(_probe(target, data, "a seed") for data in seeds):
        raise AssertionError(f"{target.name} takes none of its seeds: nothing deep is reached")
    taken = traced = 0
    end = first + count
    with _alarm() as watched:
        for begin in range(first - first % GROUP_INPUTS, end, GROUP_INPUTS):
            part = range(max(begin, first), min(begin + GROUP_INPUTS, end))
            inputs = mutator.inputs(f"{seed} {target.name}", part.start, len(part))
            if begin // GROUP_INPUTS % traced_every == 0:
                traced += len(part)
                with _traced():
                    taken += _run(target, inputs, seed, watched, _counted)
            else:
                with _capped(target):
                    taken += _run(target, inputs, seed, watched, _probe)
    return Tally(taken, count - taken, traced)


def _run(
    target: Target,
    inputs: Iterator[tuple[int, bytes]],
    seed: int,
    watched: _Watched,
    probe: Callable[[Target, bytes, str], bool],
) -> int:
    """How many of the inputs were taken."""
    taken = 0
    for number, data in inputs:
        watched.number = number
        try:
            taken += probe(target, data, f"seed {seed}, input {number}")
        except HangError:
            why = f"no end within {CPU_DEADLINE_S:g} s of CPU"
            raise _broken(target, data, f"seed {seed}, input {number}", why) from None
    return taken


def _counted(target: Target, data: bytes, which: str) -> bool:
    """Run one input and count what it allocates; whether it was taken.

    What is over the bound counts only if it is so again: a bounded cache grows at some input.
    """
    allowed = target.factor * len(data) + target.constant_bytes
    taken, peak = _peak(target, data, which)
    if peak > allowed:
        taken, peak = _peak(target, data, which)
    if peak > allowed:
        raise _broken(target, data, which, f"{peak} bytes allocated, {allowed} allowed")
    return taken


def _peak(target: Target, data: bytes, which: str) -> tuple[bool, int]:
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    taken = _probe(target, data, which)
    return taken, tracemalloc.get_traced_memory()[1] - before


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
def _capped(target: Target) -> Iterator[None]:
    """So little memory is left that what is far over the bound ends as a MemoryError.

    A limit of the address space does not concern what the allocator kept of earlier work, which may
    be a hundred megabytes. It gives back what it can, and large blocks of the rest are taken away,
    from every arena (a call that fails has tried two of them).
    """
    allowed = target.factor * INPUT_BYTES_MAX + target.constant_bytes + UNTRACED_SLACK_BYTES
    _LIBC.malloc_trim(0)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    kept: list[ctypes.c_void_p] = []
    try:
        resource.setrlimit(resource.RLIMIT_AS, (used, before[1]))
        for _ in range(ARENAS_MAX):
            while block := _MALLOC(allowed):
                kept.append(ctypes.c_void_p(block))
        resource.setrlimit(resource.RLIMIT_AS, (used + allowed, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        for each in kept:
            _LIBC.free(each)


@dataclass(slots=True)
class _Watched:
    """The input that runs, and the one that ran at the last look."""

    number: int = -1
    seen: int = -1


@contextmanager
def _alarm() -> Iterator[_Watched]:
    """CPU time, not the clock: a busy machine must not look like a hang."""
    watched = _Watched()

    def ring(_number: int, _frame: FrameType | None) -> None:
        if watched.number == watched.seen >= 0:
            raise HangError
        watched.seen = watched.number

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_DEADLINE_S, CPU_DEADLINE_S)
    try:
        yield watched
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
