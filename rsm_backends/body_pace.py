"""How a request body is held back while it is sent, piece by piece.

Around a call to a store, `pacing` says who is asked before each piece. A store that sends bodies
over a connection asks as it sends; of any other, the bytes are paid for once the call has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Ask = Callable[[int], Awaitable[None]]
"""Returns when so many bytes may move."""


class BodyPace:
    """Of one call, its retries included: a body that is sent twice is asked for twice."""

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
    """Bodies made while inside are held back by it."""
    token = _CURRENT.set(pace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_pace() -> BodyPace | None:
    """For a store that makes a body; None: it may go as fast as it can."""
    return _CURRENT.get()
