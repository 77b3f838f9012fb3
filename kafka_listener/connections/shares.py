"""Shares the event loop's time and the memory for answers among all connections.

A connection has one request under way, and the lock is fair: the request that waits longest gets
the next turn, and no connection gets a second turn before every waiting one had its first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rlm.data_plane.kept_objects import kept_objects

SLICE = 100
"""Partitions of a request that are processed in one turn. A request with fewer waits for no turn.
"""
PARTITION_BYTES = 40
"""The approximate size of a partition in a message without records."""
FIRST_BYTES = 64 << 10
"""The bytes that every answer may have, whatever room is left; a connection that waits for records
counts with them, too.
"""
LONG_ANSWERS_MAX = 2
"""The most long answers of brokers that are decoded at once: a partition takes some 500 bytes then,
ten times as much as in the answer.
"""
FREE_PARTS = 8
"""An answer takes at most the free room divided by this: a client that is slow to read its answers
makes those of other clients smaller, but never empty.
"""

LONG_REQUEST_BYTES = 16 << 10
"""The size from which a client's request counts as long: it names some hundreds of partitions."""
LONG_REQUESTS_BYTES_MAX = 8 << 20
"""The bytes of all long requests in progress: decoded, with its answer, one takes 20 to 40 times
its size.
"""

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(slots=True)
class Turns:
    """The turns of a node's event loop. `long_answers` is held as long as a broker's long answer is
    in memory decoded; who holds it waits for turns, but for no client or broker.
    """

    long_answers: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(LONG_ANSWERS_MAX)
    )
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def in_slices(
        self,
        items: Sequence[Item],
        work: Callable[[Sequence[Item]], Awaitable[None]],
        weight: Callable[[Item], float] = lambda _: 1,
    ) -> None:
        """Do the work on slices of the items, and wait for a turn before each slice but the first.
        `weight`: the number of partitions whose work one item equals.
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
        """Do pure work on a number of partitions. Work of more than one turn is done in a thread,
        so that the loop continues meanwhile.
        """
        if partitions <= SLICE:
            return work()
        async with self._turn:
            working = asyncio.ensure_future(asyncio.to_thread(_without_full_collection, work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                # A thread can't be stopped. The turn lasts until it has ended, or clients that ask
                # and disconnect would keep many of them running.
                await asyncio.wait({working})
                if not working.cancelled():
                    working.exception()  # mark it as retrieved: no caller is left
                raise


def _without_full_collection(work: Callable[[], Found]) -> Found:
    """Run the work without a full garbage collection, which would block the loop while it scans the
    long message.
    """
    with kept_objects():
        return work()


async def _next_turn_of_the_loop() -> None:
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()


@dataclass(slots=True)
class RequestRoom:
    """The memory for long requests in progress; further ones wait, in their order."""

    bytes_max: int = LONG_REQUESTS_BYTES_MAX
    held_bytes: int = 0
    _waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)

    @asynccontextmanager
    async def of(self, size_bytes: int) -> AsyncIterator[None]:
        """The block of one request's work."""
        if size_bytes < LONG_REQUEST_BYTES:
            yield
            return
        size_bytes = min(size_bytes, self.bytes_max)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self._go_on()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self.held_bytes -= size_bytes
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.cancelled():  # else the client has left
                if self.held_bytes + size_bytes > self.bytes_max:
                    return
                self.held_bytes += size_bytes
                turn.set_result(None)
            self._waiting.popleft()


@dataclass(slots=True)
class AnswerRoom:
    """The memory for a node's answers: at most `bytes_max` of records are under way, plus
    `FIRST_BYTES` or one batch for each connection.
    """

    bytes_max: int
    held_bytes: int = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The share of one answer, released when the block ends."""
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
        """Reserve up to `size_bytes` more; return how many were granted. A size from a client may
        be negative.
        """
        free = max(self.room.bytes_max - self.room.held_bytes, 0)
        granted = min(max(size_bytes, 0), max(free // FREE_PARTS, FIRST_BYTES))
        self.keep(self.held_bytes + granted)
        return granted

    def keep(self, size_bytes: int) -> None:
        """Keep `size_bytes` and release the rest."""
        self.room.held_bytes += size_bytes - self.held_bytes
        self.held_bytes = size_bytes
