"""Delays a worker's uploads while reads queue behind them.

A read queues while its bytes wait for the supervisor, which takes them at once whatever the clients
do: so the read waits for a core, and copies take cores. A reader that waits for a far store or a
slow client does not count: holding copies back would not help it. While reads queue, copies follow
deficit round robin: a byte sent is a byte of debt, bytes read and time pay it off, and the next
part is sent once nothing is owed.

A part waits before its request begins, never within it: the store sees no body that stops, and its
time limits and metrics do not count the wait. Deadlines and cancellation of the copy pass through.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

COPIED_PER_READ = 0.4
"""Bytes copied for each byte read: a byte costs more to verify and store than to read."""

COPY_BYTES_PER_S_MIN = 32 * 1024 * 1024
"""The rate of copies in any case, however slow the reads are."""

DEBT_BYTES_MAX = 64 * 1024 * 1024
"""The most that one large part may cost those behind it."""

QUEUEING_SHARE = 0.25
"""Reads queue if one did for this share of the time, of late."""

LATE_S = 0.1
"""The length of "of late": the time constant of an exponential mean."""

HELD_S_MAX = 5.0
"""The longest time that reads hold a part back: far below what makes a copy look stuck."""

LOOK_S = 0.05
"""The longest time between two looks at whether reads still queue."""


class CopyShare:
    """The copies' share of a worker. Pure; times are monotonic seconds that never go back."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._waiting = 0
        self._queued = 0.0
        self._debt_bytes = 0.0

    @property
    def queueing(self) -> bool:
        """True while reads queue, so that copies are held to their share."""
        return self._queued >= QUEUEING_SHARE

    def read_waits(self, now_s: float) -> None:
        """Bytes of a read wait to be taken, until `read_goes_on`."""
        self._pass(now_s)
        self._waiting += 1

    def read_goes_on(self, size: int, now_s: float) -> None:
        """`size` bytes were taken, 0 if the read was given up."""
        self._pass(now_s)
        self._waiting -= 1
        self._pay(size * COPIED_PER_READ)

    def wait_s(self, now_s: float) -> float:
        """Seconds until asking again makes sense, less after a read; 0: send the next part."""
        self._pass(now_s)
        return self._debt_bytes / COPY_BYTES_PER_S_MIN

    def sent(self, size: int, now_s: float) -> None:
        """A part of so many bytes begins to be sent, allowed or not."""
        self._pass(now_s)
        if self.queueing:
            self._debt_bytes = min(self._debt_bytes + size, DEBT_BYTES_MAX)

    def _pass(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        self._now_s = now_s
        now = 1.0 if self._waiting else 0.0
        self._queued = now + (self._queued - now) * math.exp(-passed_s / LATE_S)
        if self.queueing:
            self._pay(passed_s * COPY_BYTES_PER_S_MIN)
        else:
            self._debt_bytes = 0.0

    def _pay(self, size: float) -> None:
        self._debt_bytes = max(0.0, self._debt_bytes - size)


class CopyTurns:
    """The turns of a worker's uploads, one per worker; belongs to one event loop. First come, first
    served.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._share = CopyShare(monotonic())
        self._line = asyncio.Lock()
        self._changed = asyncio.Event()

    async def before(self, size: int) -> None:
        """Return when a request with a body of so many bytes may begin."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_S_MAX), self._line:
                while (wait_s := self._share.wait_s(self._monotonic())) > 0:
                    await self._change(min(wait_s, LOOK_S))
        # No other waiter has looked meanwhile, so this one goes on at once.
        self._share.sent(size, self._monotonic())

    @contextmanager
    def read(self, size: int) -> Iterator[None]:
        """Wraps the wait until the supervisor takes so many bytes of a read."""
        self._share.read_waits(self._monotonic())
        taken = 0
        try:
            yield
            taken = size
        finally:
            now_s = self._monotonic()
            self._share.read_goes_on(taken, now_s)
            if self._line.locked() and self._share.wait_s(now_s) == 0:
                self._changed.set()

    async def _change(self, wait_s: float) -> None:
        """Wait until a read goes on, at most `wait_s`."""
        self._changed.clear()
        timer = asyncio.get_running_loop().call_later(wait_s, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()
