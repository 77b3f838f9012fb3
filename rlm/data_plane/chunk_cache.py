"""Verified chunks of `.log` objects, kept in memory for whoever reads them next.

Invariant: what is here passed its checksum, and was put together so that it pins no other bytes.
Segments never change and their ids are never used twice, so nothing here grows stale. A segment
that is deleted, or left by the lineage, is not resolved for readers any more; its chunks are asked
for by nobody and are the first to go.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, fields

from rlmm.segment import RemoteLogSegmentId

ChunkKey = tuple[RemoteLogSegmentId, int, int]
"""Segment, the CRC32C of its `.log`, number of the chunk."""

PROTECTED_PERCENT = 80
"""What chunks that were read again may take; what was read once goes first."""


@dataclass(slots=True)
class ChunkCounts:
    """Since the start. `shared`: misses that another reader's request answered.

    `ahead_used`: fetches of `rlm/data_plane/read_ahead.py` whose read went on to what they are for;
    `ahead_wasted`: those whose read ended before.
    """

    hits: int = 0
    misses: int = 0
    shared: int = 0
    ahead_used: int = 0
    ahead_wasted: int = 0

    def __add__(self, other: ChunkCounts) -> ChunkCounts:
        return ChunkCounts(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        )


class ChunkCache:
    """At most `bytes_max` of chunks (segmented LRU); 0 keeps nothing. Of one event loop.

    A chunk read once can push out only others that were read once, so that one long scan does not
    cost the readers of recent data theirs.
    """

    def __init__(self, bytes_max: int) -> None:
        self.counts = ChunkCounts()
        self._bytes_max = bytes_max
        self._once: OrderedDict[ChunkKey, bytes] = OrderedDict()
        self._again: OrderedDict[ChunkKey, bytes] = OrderedDict()
        self._bytes = self._again_bytes = 0
        self._flights: dict[ChunkKey, asyncio.Future[bytes | None]] = {}

    @property
    def enabled(self) -> bool:
        """False: chunks need not even be put together for it."""
        return self._bytes_max > 0

    @property
    def bytes_held(self) -> int:
        """How much is kept now."""
        return self._bytes

    def holds(self, key: ChunkKey) -> bool:
        """Whether `find` would answer at once. Counts as no use."""
        return key in self._again or key in self._once

    async def find(self, key: ChunkKey) -> bytes | None:
        """The chunk, if it is here or being received for another reader; None: fetch it.

        Who is told None must call `begin` before it waits for anything. The wait is bounded by the
        deadlines of the other's request, since a flight is open only while the store is waited for.
        """
        data = self._get(key)
        if data is not None:
            self.counts.hits += 1
            return data
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait((flight,))  # not `await flight`: leaving must not cancel it
            data = flight.result()
            if data is not None:
                self.counts.shared += 1
                return data
        self.counts.misses += 1
        return None

    def begin(self, key: ChunkKey) -> bool:
        """The chunk's first byte is waited for; False if another does so already.

        Who got True ends it by `land` or `give_up`, and before it waits for anything but the store.
        """
        if key in self._flights:
            return False
        self._flights[key] = asyncio.get_running_loop().create_future()
        return True

    def land(self, key: ChunkKey, data: bytes) -> None:
        """The chunk is here and right."""
        self._end(key, data)
        self._put(key, data)

    def give_up(self, key: ChunkKey) -> None:
        """It did not come: whoever waits for it fetches it by itself."""
        self._end(key, None)

    def _end(self, key: ChunkKey, data: bytes | None) -> None:
        flight = self._flights.pop(key)
        flight.set_result(data)

    def _get(self, key: ChunkKey) -> bytes | None:
        data = self._again.get(key)
        if data is not None:
            self._again.move_to_end(key)
            return data
        data = self._once.pop(key, None)
        if data is not None:
            self._again[key] = data
            self._again_bytes += len(data)
            while self._again_bytes * 100 > self._bytes_max * PROTECTED_PERCENT:
                fallen, its = self._again.popitem(last=False)
                self._again_bytes -= len(its)
                self._once[fallen] = its
        return data

    def _put(self, key: ChunkKey, data: bytes) -> None:
        if self.holds(key) or len(data) > self._bytes_max:
            return
        self._once[key] = data
        self._bytes += len(data)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._drop())

    def _drop(self) -> bytes:
        if self._once:
            return self._once.popitem(last=False)[1]
        data = self._again.popitem(last=False)[1]
        self._again_bytes -= len(data)
        return data
