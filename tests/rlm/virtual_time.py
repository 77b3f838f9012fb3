"""An event loop whose clock jumps to the next timer as soon as there is nothing else to do.

Deadlines of hours pass at once, no test sleeps, and no timing decides anything: while a thread of
an executor is busy the clock stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from kafka_formats.kafka_uuid import Uuid
from rlm.control.surroundings import Ambient

START_MS = 1_700_000_000_000

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _VirtualSelector(selectors.DefaultSelector):
    """Jumps instead of waiting, unless a thread is busy."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or self.loop.busy_threads:
            return super().select(None if timeout != 0 else 0)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.loop.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module; `now_s` is the clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.busy_threads = 0
        selector = _VirtualSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self.busy_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: asyncio.Future[Any]) -> None:
        self.busy_threads -= 1


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
