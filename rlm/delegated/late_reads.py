"""Reads that a call of the broker begins, and that continue when its time is over.

A call has 0.8 to 2 s. A read that takes longer, because the store is slow or its rate is limited,
would begin anew with each call and never finish, and the broker's consumers would not get past that
segment. So it continues, and a later call finds it under way, or its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Found = TypeVar("Found")


@dataclass(slots=True)
class LateReads:
    """The reads under way, by a key for the data that each reads."""

    _under_way: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._under_way)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._under_way

    async def wait_for(self, key: Hashable, read: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of the read with this key; begin it with `read` unless it is under way.
        It continues if the caller is cancelled: `read` bounds its own time, and keeps its result
        for later callers.
        """
        reading = self._under_way.get(key)
        if reading is None:
            reading = self._under_way[key] = asyncio.ensure_future(_run(read))
            reading.add_done_callback(lambda ended: self._ended(key, ended))
        found: Found = await asyncio.shield(reading)
        return found

    def _ended(self, key: Hashable, reading: asyncio.Task[Any]) -> None:
        """Forget an ended read; after a failure the next call tries again."""
        del self._under_way[key]
        if not reading.cancelled():
            reading.exception()  # read, so that it is not reported a second time


async def _run(read: Callable[[], Awaitable[Found]]) -> Found:
    return await read()
