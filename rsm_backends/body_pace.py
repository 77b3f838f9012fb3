"""Paces request bodies: a body waits before each piece until these bytes may move.

`pacing`, around a call to a store, sets whom to ask before each piece. A store that sends bodies
over a connection asks as it sends; for any other store the bytes are paid for after the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Ask = Callable[[int], Awaitable[None]]
"""Returns when this many bytes may move."""


class BodyPace:
    """The pace of one call, retries included: a body that is sent twice is asked for twice."""

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
    """Bodies made within the block are sent at this pace."""
    token = _CURRENT.set(pace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_pace() -> BodyPace | None:
    """The pace for a body made now; None if it may be sent as fast as possible."""
    return _CURRENT.get()
