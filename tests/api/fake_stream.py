"""What a read yields, for tests of whoever passes it on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass


@dataclass
class FakeStream:
    """What a read yields, and whether it was closed. An Exception among the items is raised."""

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
