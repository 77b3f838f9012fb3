"""An event loop whose clock jumps to the next timer as soon as there is nothing else to do.

Deadlines of hours pass at once, no test sleeps, and no timing decides anything. A call given to an
executor runs in the loop, as one of its callbacks: handing each to a thread and back took between a
tenth and a quarter of these tests' CPU time. The seeded worlds draw the order in which threads get
on (sim/nodes/loop.py); tests of whole processes have the machine's.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from kafka_formats.kafka_uuid import Uuid
from rlm.control.surroundings import Ambient

START_MS = 1_700_000_000_000

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _VirtualSelector(selectors.DefaultSelector):
    """Jumps instead of waiting."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        ready = super().select(0)
        if not ready and timeout > 0:
            self.loop.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module; `now_s` is the clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _VirtualSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        outcome: asyncio.Future[T] = self.create_future()
        self.call_soon(self._call, outcome, partial(func, *args))
        return outcome

    def _call(self, outcome: asyncio.Future[T], func: Callable[[], T]) -> None:
        """As in a thread, `func` sees no loop and goes on when nobody waits for it any more."""
        settle: Callable[[], None]
        events._set_running_loop(None)
        try:
            settle = partial(outcome.set_result, func())
        except BaseException as error:
            settle = partial(outcome.set_exception, error)
        finally:
            events._set_running_loop(self)
        if not outcome.done():
            settle()


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine to its end on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


def virtual_ambient(first_uuid: int = 1) -> Ambient:
    """The loop's clock, as wall clock and monotonic; ids that count; jitter of one half."""
    loop = asyncio.get_running_loop()
    count = first_uuid

    def new_uuid() -> Uuid:
        nonlocal count
        count += 1
        return Uuid(count.to_bytes(16, "big"))

    return Ambient(
        now_ms=lambda: START_MS + round(loop.time() * 1000),
        monotonic=loop.time,
        sleep=asyncio.sleep,
        random_fraction=lambda: 0.5,
        new_uuid=new_uuid,
    )
