"""Delays a worker's uploads while reads queue behind them.

A read queues while its bytes wait for the supervisor, which takes them at once, independent of the
clients. So the read waits for a core, and copies use cores. A read that waits for a far store or a
slow client does not count: delaying copies would not help it. While reads queue, copies follow
deficit round robin: a byte sent adds a byte of debt, bytes read and time reduce it, and the next
part is sent once the debt is zero.

A part waits before its request begins, never within it: the store sees no body that stalls, and the
request's time limits and metrics do not include the wait. Deadlines and cancellation of the copy
still apply.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

COPIED_PER_READ = 0.4
"""The bytes copied for each byte read: a byte costs more to verify and store than to read."""

COPY_BYTES_PER_S_MIN = 32 * 1024 * 1024
"""The rate that copies always get, however slow the reads are."""

DEBT_BYTES_MAX = 64 * 1024 * 1024
"""The largest debt, so that one large part does not delay the parts after it for long."""

QUEUEING_SHARE = 0.25
"""Reads count as queueing if one queued for this share of the recent time."""

LATE_S = 0.1
"""The time constant of the exponential mean over recent time."""

HELD_S_MAX = 5.0
"""The longest time that reads delay a part: far below the time after which a copy looks stuck."""

LOOK_S = 0.05
"""The longest time between two checks whether reads still queue."""


class CopyShare:
    """The copies' share of a worker. Pure; times are monotonic seconds that never decrease."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._waiting = 0
        self._queued = 0.0
        self._debt_bytes = 0.0

    @property
    def queueing(self) -> bool:
        """True while reads queue, so that copies are limited to their share."""
        return self._queued >= QUEUEING_SHARE

    def read_waits(self, now_s: float) -> None:
        """Record that bytes of a read wait to be taken, until `read_goes_on`."""
        self._pass(now_s)
        self._waiting += 1

    def read_goes_on(self, size: int, now_s: float) -> None:
        """Record that `size` bytes were taken, 0 if the read was given up."""
        self._pass(now_s)
        self._waiting -= 1
        self._pay(size * COPIED_PER_READ)

    def wait_s(self, now_s: float) -> float:
        """Seconds after which to ask again, less once a read goes on; 0: send the next part."""
        self._pass(now_s)
        return self._debt_bytes / COPY_BYTES_PER_S_MIN

    def sent(self, size: int, now_s: float) -> None:
        """Record that a part of `size` bytes begins to be sent, even if `wait_s` was not 0."""
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
    """Delays a worker's uploads, one per worker; belongs to one event loop. Uploads proceed in the
    order in which they came.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._share = CopyShare(monotonic())
        self._line = asyncio.Lock()
        self._changed = asyncio.Event()

    async def before(self, size: int) -> None:
        """Return when a request with a body of `size` bytes may begin."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_S_MAX), self._line:
                while (wait_s := self._share.wait_s(self._monotonic())) > 0:
                    await self._change(min(wait_s, LOOK_S))
        # No other upload asked in between, so this one may begin.
        self._share.sent(size, self._monotonic())

    @contextmanager
    def read(self, size: int) -> Iterator[None]:
        """Wrap the wait until the supervisor takes `size` bytes of a read."""
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
