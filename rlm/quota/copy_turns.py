"""Holds a worker's uploads back, part by part, as `rlm/quota/copy_share.py` decides.

A part waits before its request begins, never within it: the store sees no body that stops, and
neither the store's time limits nor its metrics hear of the wait. Deadlines, and cancelling, of the
copy itself go through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rlm.quota.copy_share import CopyShare

HELD_S_MAX = 5.0
"""After so long a part is sent whatever reads do: far below what makes a copy look stuck."""

LOOK_S = 0.05
"""Whether reads still queue is looked at this often."""


class CopyTurns:
    """Of one worker; belongs to one event loop. First come, first served."""

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
        # Nobody behind it has looked meanwhile: who leaves the line goes on at once.
        self._share.sent(size, self._monotonic())

    @contextmanager
    def read(self, size: int) -> Iterator[None]:
        """Around the wait until the supervisor takes so many bytes of a read."""
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
        """Wait for a read to go on, or so long."""
        self._changed.clear()
        timer = asyncio.get_running_loop().call_later(wait_s, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()
