"""Which waiting partition copies next when a slot is free: fair by backlog, nobody starves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition in the queue: bytes it could copy now, and for how long it has waited (s)."""

    backlog_bytes: int
    waited_s: float


def next_in_line(waiting: Sequence[Waiting]) -> int:
    """The index of the one to go first: the largest backlog times waiting time.

    Both factors count, so that a partition far behind goes often, and a small one goes before it
    has waited long in proportion. Ties go to the one that came first.
    """
    scores = [(each.backlog_bytes + 1) * (each.waited_s + 1) for each in waiting]
    return scores.index(max(scores))


@dataclass(slots=True)
class _Waiter:
    future: asyncio.Future[None]
    backlog_bytes: int
    since_s: float


class CopySlots:
    """At most `slots_max` holders at once."""

    def __init__(self, slots_max: int, monotonic: Callable[[], float]) -> None:
        self._free = slots_max
        self._monotonic = monotonic
        self._waiters: list[_Waiter] = []

    @asynccontextmanager
    async def slot(self, backlog_bytes: int) -> AsyncIterator[None]:
        """Hold a slot for one segment; queue again for the next."""
        await self._acquire(backlog_bytes)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, backlog_bytes: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        future = asyncio.get_running_loop().create_future()
        waiter = _Waiter(future, backlog_bytes, self._monotonic())
        self._waiters.append(waiter)
        try:
            await future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not future.cancelled():
                # The slot was handed over in the same step as the cancellation: pass it on.
                self._release()
            raise

    def _release(self) -> None:
        # Somebody cancelled leaves the queue a step later; a slot handed to them would be an error.
        self._waiters = [each for each in self._waiters if not each.future.cancelled()]
        if not self._waiters:
            self._free += 1
            return
        now_s = self._monotonic()
        line = [Waiting(each.backlog_bytes, now_s - each.since_s) for each in self._waiters]
        self._waiters.pop(next_in_line(line)).future.set_result(None)
