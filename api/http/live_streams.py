"""The open streams of events, and the one event that all of them send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka_formats.errors import RetryLater


class LiveStreams:
    """Counts the open streams; each event is made once for all of them."""

    def __init__(self) -> None:
        self.open = 0
        self._ended = asyncio.Event()
        self._event = b""
        self._made_at_s: float | None = None

    @contextmanager
    def taken(self, most: int) -> Iterator[None]:
        """Take one of `most` streams. RetryLater: all of them are taken."""
        if self.open >= most:
            raise RetryLater(
                f"{self.open} streams of events are open, which is the most at once: close one, "
                "or try again later"
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def event(self, make: Callable[[], bytes], now_s: float, fresh_s: float) -> bytes:
        """The present event, made again if it is older than `fresh_s`."""
        if self._made_at_s is None or now_s - self._made_at_s >= fresh_s:
            self._event, self._made_at_s = make(), now_s
        return self._event

    async def pause(self, seconds: float) -> bool:
        """Wait for `seconds`. True: the node stops, and streams end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    def end(self) -> None:
        """End all streams at once, also those that begin later."""
        self._ended.set()
