"""When the next committed records are applied: at once for whoever waits for them, else after a
rest, in which more of them come.

What a step of apply touches has left the processor's caches after a few milliseconds of other work:
fetching it again costs as much as some twenty records. A node for which nobody waits, which most
are for most records, pays that once a rest instead of with every commit. A record that comes after
the rest is applied at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ApplyPace:
    """One event loop's; one task rests."""

    def __init__(self, rest_ms: int, *, proposing: Callable[[], bool]) -> None:
        """`proposing`: whether an outcome is waited for; whose answer turns to yes calls
        `awaited`.
        """
        self._rest_s = rest_ms / 1000
        self._proposing = proposing
        self._waiting = 0
        self._resting: asyncio.Future[None] | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this lasts somebody waits for an offset, and there is no rest."""
        self._waiting += 1
        self.awaited()
        try:
            yield
        finally:
            self._waiting -= 1

    def awaited(self) -> None:
        """The rest that is under way ends."""
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    async def rest(self) -> None:
        """Return when the next records are to be applied, or waited for."""
        if self._waiting or self._proposing() or not self._rest_s:
            return
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        timer = loop.call_later(self._rest_s, self.awaited)
        try:
            await self._resting
        finally:
            timer.cancel()
            self._resting = None
