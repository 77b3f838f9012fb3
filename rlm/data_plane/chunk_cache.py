"""A cache of verified chunks of `.log` objects for the next readers, and a plain LRU cache.

Invariant: a chunk in the cache passed its checksum, and keeps no other bytes alive. Segments never
change and their ids are never reused, so no entry gets stale. Readers no longer resolve a segment
that was deleted or left the lineage; its chunks are not used and are evicted first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from rlmm.segment import RemoteLogSegmentId

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
ChunkKey = tuple[RemoteLogSegmentId, int, int]
"""(segment id, CRC32C of its `.log`, number of the chunk)."""

PROTECTED_PERCENT = 80
"""Limit of the share of chunks that were read again; chunks that were read once are evicted
first.
"""


@dataclass(slots=True)
class ChunkCounts:
    """Counts since the start. `shared` counts misses that the request of a different reader
    answered.

    `ahead_used_bytes` are bytes that were fetched ahead and then read, `ahead_wasted_bytes` those
    that were evicted before they were read.
    """

    hits: int = 0
    misses: int = 0
    shared: int = 0
    ahead_used_bytes: int = 0
    ahead_wasted_bytes: int = 0

    def __add__(self, other: ChunkCounts) -> ChunkCounts:
        return ChunkCounts(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        )


class ChunkCache:
    """A segmented LRU cache of at most `bytes_max` of chunks; 0 disables it. For one event loop.

    A chunk that is read once evicts only chunks that were read once, so that a long scan does not
    evict frequently read data. At most `ahead_bytes_max` of the bytes are chunks that were fetched
    ahead and not read yet.
    """

    def __init__(self, bytes_max: int, ahead_bytes_max: int = 0) -> None:
        self.counts = ChunkCounts()
        self._bytes_max = bytes_max
        self._ahead_bytes_max = min(ahead_bytes_max, bytes_max)
        self._ahead: OrderedDict[ChunkKey, bytes] = OrderedDict()
        self._ahead_bytes = 0
        self._once: OrderedDict[ChunkKey, bytes] = OrderedDict()
        self._again: OrderedDict[ChunkKey, bytes] = OrderedDict()
        self.bytes_held = self._again_bytes = 0
        self._flights: dict[ChunkKey, asyncio.Future[bytes | None]] = {}

    @property
    def enabled(self) -> bool:
        """True if the cache may keep chunks; if not, callers need not join their parts."""
        return self._bytes_max > 0

    def holds(self, key: ChunkKey) -> bool:
        """True if `find` would return the chunk at once. This does not count as use."""
        return key in self._again or key in self._once or key in self._ahead

    def expects(self, key: ChunkKey) -> bool:
        """True if the chunk is in the cache or being fetched."""
        return self.holds(key) or key in self._flights

    async def find(self, key: ChunkKey, *, again: bool = True) -> bytes | None:
        """The chunk, if it is in the cache or a different reader is fetching it; None if the caller
        has to fetch it. With `again` False the same reader reads it once more, which does not make
        it a chunk that was read again.

        After None, call `begin` before any other `await`. The wait is bounded by the deadlines of
        the other reader's request, since a fetch is announced only while it waits for the store.
        """
        data = self._get(key, again=again)
        if data is not None:
            self.counts.hits += 1
            return data
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait((flight,))  # not `await flight`: a cancelled reader must not end it
            data = flight.result()
            if data is not None:
                self._get(key, again=False)
                self.counts.shared += 1
                return data
        self.counts.misses += 1
        return None

    def begin(self, key: ChunkKey) -> bool:
        """Announce a fetch of the chunk; False if a different reader is fetching it. After True,
        call `land` or `give_up`, and until then await only the store.
        """
        if key in self._flights:
            return False
        self._flights[key] = asyncio.get_running_loop().create_future()
        return True

    def land(self, key: ChunkKey, data: bytes, *, ahead: bool = False) -> None:
        """Keep the verified chunk and wake the readers that wait for it."""
        self._end(key, data)
        self._put(key, data, ahead=ahead)

    def give_up(self, key: ChunkKey) -> None:
        """End a failed fetch: the readers that wait for the chunk fetch it themselves."""
        self._end(key, None)

    def _end(self, key: ChunkKey, data: bytes | None) -> None:
        flight = self._flights.pop(key)
        flight.set_result(data)

    def _get(self, key: ChunkKey, *, again: bool) -> bytes | None:
        data = self._again.get(key)
        if data is not None:
            self._again.move_to_end(key)
            return data
        data = self._ahead.pop(key, None)
        if data is not None:
            self._ahead_bytes -= len(data)
            self.counts.ahead_used_bytes += len(data)
            self._once[key] = data
            return data
        if not again:
            return self._once.get(key)
        data = self._once.pop(key, None)
        if data is not None:
            self._again[key] = data
            self._again_bytes += len(data)
            while self._again_bytes * 100 > self._bytes_max * PROTECTED_PERCENT:
                fallen, its = self._again.popitem(last=False)
                self._again_bytes -= len(its)
                self._once[fallen] = its
        return data

    def _put(self, key: ChunkKey, data: bytes, *, ahead: bool) -> None:
        if self.holds(key) or len(data) > self._bytes_max:
            return
        self.bytes_held += len(data)
        if ahead and len(data) <= self._ahead_bytes_max:
            self._ahead[key] = data
            self._ahead_bytes += len(data)
            while self._ahead_bytes > self._ahead_bytes_max:
                fallen, its = self._drop_ahead()
                self._once[fallen] = its
        else:
            self._once[key] = data
        while self.bytes_held > self._bytes_max:
            self.bytes_held -= len(self._drop())

    def _drop_ahead(self) -> tuple[ChunkKey, bytes]:
        key, data = self._ahead.popitem(last=False)
        self._ahead_bytes -= len(data)
        self.counts.ahead_wasted_bytes += len(data)
        return key, data

    def _drop(self) -> bytes:
        if self._once:
            return self._once.popitem(last=False)[1]
        if not self._again:
            return self._drop_ahead()[1]
        data = self._again.popitem(last=False)[1]
        self._again_bytes -= len(data)
        return data


class ByteBoundedCache(Generic[_Key, _Value]):
    """An LRU cache of values with weights in bytes, together at most `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes_held = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def get(self, key: _Key) -> _Value | None:
        """The value, or None. This counts as use."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def take(self, key: _Key) -> _Value | None:
        """Remove the value and return it, or None."""
        value, weight_bytes = self._entries.pop(key, (None, 0))
        self.bytes_held -= weight_bytes
        return value

    def put(self, key: _Key, value: _Value, weight_bytes: int) -> None:
        """Keep the value, unless it alone exceeds `bytes_max`."""
        if weight_bytes > self._bytes_max:
            return
        if key in self._entries:
            self.bytes_held -= self._entries.pop(key)[1]
        self._entries[key] = (value, weight_bytes)
        self.bytes_held += weight_bytes
        while self.bytes_held > self._bytes_max:
            self.bytes_held -= self._entries.popitem(last=False)[1][1]
