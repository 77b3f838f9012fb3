"""A stream with given parts, in the place of a read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass


@dataclass
class FakeStream:
    """Yields `items`, of which an Exception is raised; tells if it was closed."""

    items: Sequence[bytes | Exception]
    hangs: bool = False
    closed: bool = False
    asked: int = 0

    async def read(self) -> AsyncIterator[bytes]:
        try:
            for item in self.items:
                self.asked += 1
                if isinstance(item, Exception):
                    raise item
                yield item
            if self.hangs:
                await asyncio.Event().wait()
        finally:
            self.closed = True
