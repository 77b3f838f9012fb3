"""Paces request bodies: a body waits before each piece until its bytes may be sent.

`pacing`, around a call to a store, sets the pace. A store that sends bodies over a connection asks
before each piece; for any other store the bytes are charged after the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Ask = Callable[[int], Awaitable[None]]
"""Takes a number of bytes; returns when they may be sent."""


class BodyPace:
    """The pace of one call, retries included: a body that is sent twice is charged twice."""

    def __init__(self, ask: Ask, piece_bytes: int) -> None:
        self.piece_bytes = piece_bytes
        self.asked_bytes = 0
        self._ask = ask

    async def before(self, size: int) -> None:
        """Return when the next `size` bytes of the body may be sent."""
        self.asked_bytes += size
        await self._ask(size)


_CURRENT: ContextVar[BodyPace | None] = ContextVar("strandline body pace", default=None)


@contextmanager
def pacing(pace: BodyPace) -> Iterator[None]:
    """Send the bodies that are made within the block at this pace."""
    token = _CURRENT.set(pace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_pace() -> BodyPace | None:
    """The pace for a body made now; None if it may be sent as fast as possible."""
    return _CURRENT.get()
