"""Every connection's share of what all of them have: turns of the event loop, and room for bytes.

A connection has one request under way. So whoever waits longest for a turn is next, and nobody has
a second one before the others had theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rlm.data_plane.kept_objects import kept_objects

SLICE = 100
"""Partitions of a request that are worked on in one turn. A shorter request waits for none."""
PARTITION_BYTES = 40
"""The size of a partition in a message without records, about."""
FIRST_BYTES = 64 << 10
"""The bytes that every answer may have. Waiting for records, a connection counts with it."""
FREE_PARTS = 8
"""The part of the free room, one in so many, that an answer takes at most: somebody who is slow to
take his answers leaves smaller ones to the others, and never none.
"""

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(slots=True)
class Turns:
    """The turns of a node's event loop."""

    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def in_slices(
        self,
        items: Sequence[Item],
        work: Callable[[Sequence[Item]], Awaitable[None]],
        weight: Callable[[Item], float] = lambda _: 1,
    ) -> None:
        """Have the work done on slices of the items, with a turn for each but the first. `weight`:
        the partitions whose work an item is as much as.
        """
        start = 0
        while start < len(items):
            if start:
                async with self._turn:
                    await _next_turn_of_the_loop()
            end, left = start + 1, SLICE - weight(items[start])
            while end < len(items) and (left := left - weight(items[end])) >= 0:
                end += 1
            await work(items[start:end])
            start = end

    async def apart(self, partitions: int, work: Callable[[], Found]) -> Found:
        """The result of pure work on so many partitions. What would take several turns is done in a
        thread: the loop goes on beside it.
        """
        if partitions <= SLICE:
            return work()
        async with self._turn:
            working = asyncio.ensure_future(asyncio.to_thread(_without_full_collection, work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                # No thread can be stopped. The turn is over once it has ended, or clients that ask
                # and leave would have many of them under way.
                await asyncio.wait({working})
                if not working.cancelled():
                    working.exception()  # nobody is left to hear of it
                raise


def _without_full_collection(work: Callable[[], Found]) -> Found:
    """A full collection would hold the loop, too, for as long as it takes to look through all of
    the long message.
    """
    with kept_objects():
        return work()


async def _next_turn_of_the_loop() -> None:
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()


@dataclass(slots=True)
class AnswerRoom:
    """The room for a node's answers: at most `bytes_max` of records are under way, and
    `FIRST_BYTES` or one batch for each connection besides.
    """

    bytes_max: int
    held_bytes: int = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The share of one answer, until it has been taken."""
        share = Share(self)
        try:
            yield share
        finally:
            share.keep(0)


@dataclass(slots=True)
class Share:
    """The part of the room that one answer holds."""

    room: AnswerRoom
    held_bytes: int = 0

    def more(self, size_bytes: int) -> int:
        """Hold up to so much more; return how much it is. A size that a client gives may be
        negative.
        """
        free = max(self.room.bytes_max - self.room.held_bytes, 0)
        granted = min(max(size_bytes, 0), max(free // FREE_PARTS, FIRST_BYTES))
        self.keep(self.held_bytes + granted)
        return granted

    def keep(self, size_bytes: int) -> None:
        """Hold so much and no more."""
        self.room.held_bytes += size_bytes - self.held_bytes
        self.held_bytes = size_bytes
