"""Ranged reads of a stored object that return only bytes with a right checksum.

The object is fetched in whole chunks; each is checked before the requested part of it is returned:
of our objects by the manifest's table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

from kafka_formats.crc32c import Buffer, crc32c
from kafka_formats.errors import CorruptData, InvalidRequest, NotFound
from rlm.data_plane.chunk_cache import ChunkCache, ChunkKey
from rlm.format.manifest import ChunkChecksums
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream

WINDOW_BYTES = 8 * 1024 * 1024
"""The most that one request fetches: a reader that leaves early wastes no more."""

Parts = Sequence[Buffer]
"""Consecutive bytes in several places, joined only where they leave the process."""


class ChunkedObject(ABC):
    """Ranged reads of bytes that are fetched and checked a whole chunk at a time. Memory: a chunk,
    and what the store returns at once. Chunks are looked up and left in the cache, if any, as those
    of `cached_as`: a segment, and the CRC32C of its `.log`.
    """

    def __init__(
        self,
        key: str,
        size_bytes: int,
        chunk_bytes: int,
        cache: ChunkCache | None,
        cached_as: tuple[RemoteLogSegmentId, int] | None,
    ) -> None:
        self.key = key
        self.size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._cache = cache if cache is not None and cache.enabled else None
        self._cached_as = cached_as

    @abstractmethod
    def _fetch_present(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """The whole checked chunks [chunk, until). NotFound: there is no such object."""

    async def read(self, start: int, end: int) -> bytes:
        """Bytes [start, end) in one piece; for parts known to be small."""
        async with closing_stream(self.stream(start, end)) as stream:
            return b"".join([part async for parts in stream for part in parts])

    async def fetch_ahead(self, start: int, end: int) -> None:
        """Leave the chunks of [start, end), `end` cut to the size, in the cache, if any."""
        chunk = start // self._chunk_bytes
        behind = -(-min(end, self.size_bytes) // self._chunk_bytes)
        while (cache := self._cache) is not None and chunk < behind:
            if cache.expects(self._chunk_key(chunk)):
                chunk += 1
                continue
            until = min(chunk + max(1, WINDOW_BYTES // self._chunk_bytes), behind)
            until = self._until_expected(chunk, until)
            await self._fetch_into(cache, chunk, until)
            chunk = until

    async def _fetch_into(self, cache: ChunkCache, chunk: int, until: int) -> None:
        """Fetch [chunk, until) by one request, which their readers wait for from now on."""
        keys = [self._chunk_key(each) for each in range(chunk, until)]
        landed = 0
        for key in keys:
            cache.begin(key)
        try:
            async with closing_stream(self._fetch_verified(chunk, until)) as verified:
                async for parts in verified:
                    cache.land(keys[landed], b"".join(parts), ahead=True)
                    landed += 1
        finally:
            for key in keys[landed:]:
                cache.give_up(key)

    async def stream(
        self,
        start: int,
        end: int,
        *,
        first_window_bytes: int = WINDOW_BYTES,
        read_before: int = 0,
    ) -> AsyncIterator[Parts]:
        """Bytes [start, end), `end` cut to the size, a chunk at a time, as the store gave them. Up
        to `read_before` the same reader has read them already.

        CorruptData(key, position) at a chunk that fails its checksum or is missing; InvalidRequest
        for an impossible range.
        """
        end = min(end, self.size_bytes)
        if not 0 <= start <= max(end, 0):
            raise InvalidRequest(
                f"bytes {start} to {end} are not a range of {self.size_bytes} bytes", field="range"
            )
        if start == end:
            return
        chunk_bytes = self._chunk_bytes
        chunk, behind = start // chunk_bytes, -(-end // chunk_bytes)
        window = min(first_window_bytes, WINDOW_BYTES)
        while chunk < behind:
            kept = None
            if self._cache is not None:
                again = chunk * chunk_bytes >= read_before
                kept = await self._cache.find(self._chunk_key(chunk), again=again)
            if kept is not None:
                yield self._asked_of(chunk, (kept,), start, end)
                chunk += 1
                continue
            until = min(chunk + max(1, -(-window // chunk_bytes)), behind)
            async with closing_stream(
                self._fetch(chunk, self._until_expected(chunk, until))
            ) as verified:
                async for parts in verified:
                    yield self._asked_of(chunk, parts, start, end)
                    chunk += 1
            window = WINDOW_BYTES

    def _asked_of(self, chunk: int, parts: Parts, start: int, end: int) -> Parts:
        """The part of a whole chunk that lies in [start, end) of the object."""
        at = chunk * self._chunk_bytes
        if at >= start and at + self._chunk_bytes <= end:
            return parts
        return cut(parts, max(0, start - at), end - at)

    def _chunk_key(self, chunk: int) -> ChunkKey:
        assert self._cached_as is not None, "given with the cache"
        return (*self._cached_as, chunk)

    def _until_expected(self, chunk: int, until: int) -> int:
        """`until`, or the first chunk behind `chunk` that the cache has or gets."""
        if self._cache is not None:
            for following in range(chunk + 1, until):
                if self._cache.expects(self._chunk_key(following)):
                    return following
        return until

    async def _fetch(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """The whole verified chunks [chunk, until), by one request; they are left in the cache."""
        cache = self._cache
        if cache is None:
            fetching = self._fetch_verified(chunk, until)
            async with closing_stream(fetching):
                async for parts in fetching:
                    yield parts
            return
        ours = cache.begin(self._chunk_key(chunk))
        try:
            async with closing_stream(self._fetch_verified(chunk, until)) as verified:
                async for parts in verified:
                    data = b"".join(parts)
                    if ours:
                        cache.land(self._chunk_key(chunk), data)
                        ours = False
                    yield (data,)
                    # Only now, not while our own reader took its time: nobody waits for that.
                    chunk += 1
                    ours = chunk < until and cache.begin(self._chunk_key(chunk))
        finally:
            if ours:
                cache.give_up(self._chunk_key(chunk))

    async def _fetch_verified(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """Fetch chunks as `_fetch_present` does; CorruptData also if there is no such object."""
        try:
            async with closing_stream(self._fetch_present(chunk, until)) as verified:
                async for parts in verified:
                    yield parts
        except NotFound:
            raise gone(self.key) from None

    def _corrupt(self, message: str, position: int) -> CorruptData:
        return CorruptData(message, source=self.key, position=position)


class VerifiedObject(ChunkedObject):
    """One object of a segment of ours, whose chunks have their checksums in the manifest."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        checksums: ChunkChecksums,
        *,
        cache: ChunkCache | None = None,
        segment_id: RemoteLogSegmentId | None = None,
    ) -> None:
        cached_as = None if segment_id is None else (segment_id, checksums.crc32c)
        super().__init__(key, checksums.size_bytes, checksums.chunk_bytes, cache, cached_as)
        self._store = store
        self._checksums = checksums

    async def _fetch_present(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """The whole verified chunks [chunk, until), by one request, as the store gave them."""
        chunk_bytes, size = self._chunk_bytes, self.size_bytes
        start, end = chunk * chunk_bytes, min(until * chunk_bytes, size)
        held: list[Buffer] = []
        crc = 0
        wanted = min(chunk_bytes, end - start)
        async with closing_stream(self._store.get(self.key, start=start, end=end)) as pieces:
            async for piece in pieces:
                rest: Buffer = piece
                while rest:
                    if chunk == until:
                        raise self._corrupt("the store sent more than was asked for", end)
                    taken: Buffer = rest
                    if len(rest) > wanted:
                        whole = memoryview(rest)
                        taken, rest = whole[:wanted], whole[wanted:]
                    else:
                        rest = b""
                    held.append(taken)
                    crc = crc32c(taken, crc)
                    wanted -= len(taken)
                    if wanted == 0:
                        self._check(chunk, crc)
                        yield held
                        chunk += 1
                        held, crc = [], 0
                        wanted = min(chunk_bytes, end - chunk * chunk_bytes)
        if chunk < until:
            raise self._corrupt(
                f"the object ends here; {size} bytes are recorded",
                chunk * chunk_bytes + sum(map(len, held)),
            )

    def _check(self, chunk: int, computed: int) -> None:
        recorded = self._checksums.chunks[chunk]
        if computed != recorded:
            at = chunk * self._chunk_bytes
            size = min(self._chunk_bytes, self.size_bytes - at)
            raise self._corrupt(
                f"the {size} bytes from here on fail their CRC32C: {recorded:08x} is "
                f"recorded, {computed:08x} computed",
                at,
            )


def gone(key: str) -> CorruptData:
    """The error for a missing object of a finished segment. Not NotFound: that would mean that
    there is no such segment or index.
    """
    return CorruptData(
        "it is not in the store, though the metadata has its segment: this node lags, or somebody "
        "else deleted it (`strandline stores verify` finds all of these)",
        source=key,
        position=0,
    )


def cut(parts: Parts, start: int, end: int) -> Parts:
    """Bytes [start, end) of the joined parts; `end` may lie behind them."""
    found: list[Buffer] = []
    at = 0
    for part in parts:
        wanted = memoryview(part)[max(0, start - at) : max(0, end - at)]
        if wanted:
            found.append(wanted)
        at += len(part)
    return found
