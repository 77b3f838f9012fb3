"""Chooses the waiting partition for a free slot: by backlog, but none starves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

PATIENCE_S = 60.0
"""The longest time during which later partitions may overtake a waiting one: after it, it goes
before all of them, whatever their backlog.
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """A partition's backlog: its bytes, and the time since its oldest segment was sealed."""

    size_bytes: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition in the queue, and its time there."""

    backlog: Backlog
    waited_s: float


def next_in_line(waiting: Sequence[Waiting]) -> int:
    """The index of the one to go first: the largest backlog times its age and time in the queue.

    A small backlog could wait for ever beside terabytes. So, as an invariant
    (nobody_is_overtaken_past_patience): a partition that has waited for `PATIENCE_S` goes before
    all others, the longest waiting first. Ties go to the first in the queue.
    """
    longest = max(range(len(waiting)), key=lambda number: waiting[number].waited_s)
    if waiting[longest].waited_s >= PATIENCE_S:
        return longest
    scores = [
        (each.backlog.size_bytes + 1) * (each.backlog.age_s + each.waited_s + 1) for each in waiting
    ]
    return scores.index(max(scores))


Choose = Callable[[Sequence[Waiting]], int]


@dataclass(slots=True)
class _Waiter:
    future: asyncio.Future[None]
    backlog: Backlog
    disk: Hashable
    since_s: float


class CopySlots:
    """At most `slots_max` holders at once, and `per_disk_max` of each disk."""

    def __init__(
        self,
        slots_max: int,
        monotonic: Callable[[], float],
        *,
        per_disk_max: int | None = None,
        choose: Choose = next_in_line,
    ) -> None:
        """`per_disk_max` None: as many as there are slots."""
        self._free = slots_max
        self._per_disk_max = slots_max if per_disk_max is None else per_disk_max
        self._monotonic = monotonic
        self._choose = choose
        self._waiters: list[_Waiter] = []
        self._on_disk: Counter[Hashable] = Counter()

    @asynccontextmanager
    async def slot(self, backlog: Backlog, disk: Hashable = None) -> AsyncIterator[None]:
        """Hold a slot for one segment on `disk`; queue again for the next."""
        await self._acquire(backlog, disk)
        try:
            yield
        finally:
            self._release(disk)

    async def _acquire(self, backlog: Backlog, disk: Hashable) -> None:
        if self._may_go(disk):
            self._go(disk)
            return
        future = asyncio.get_running_loop().create_future()
        waiter = _Waiter(future, backlog, disk, self._monotonic())
        self._waiters.append(waiter)
        try:
            await future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not future.cancelled():
                # The slot was handed over in the same step as the cancellation: pass it on.
                self._release(disk)
            raise

    def _may_go(self, disk: Hashable) -> bool:
        return self._free > 0 and self._on_disk[disk] < self._per_disk_max

    def _go(self, disk: Hashable) -> None:
        self._free -= 1
        self._on_disk[disk] += 1

    def _release(self, disk: Hashable) -> None:
        self._free += 1
        self._on_disk[disk] -= 1
        if not self._on_disk[disk]:
            del self._on_disk[disk]  # disks come and go
        # A cancelled waiter leaves the queue a step later; it must not get a slot.
        self._waiters = [each for each in self._waiters if not each.future.cancelled()]
        while able := [each for each in self._waiters if self._may_go(each.disk)]:
            now_s = self._monotonic()
            line = [Waiting(each.backlog, now_s - each.since_s) for each in able]
            chosen = able[self._choose(line)]
            self._waiters.remove(chosen)
            self._go(chosen.disk)
            chosen.future.set_result(None)
