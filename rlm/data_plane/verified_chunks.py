"""Reads ranges of a stored object, and returns only bytes whose checksum is right.

The object is fetched in whole chunks, and each is checked before the requested part of it is
returned; objects of Strandline by the checksums in the manifest.
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
"""Limit of the bytes of one request, since they are wasted if the reader leaves early."""

Parts = Sequence[Buffer]
"""Consecutive bytes in several buffers; they are joined only when they leave the process."""


class ChunkedObject(ABC):
    """An object that is fetched and checked in whole chunks. A read needs memory for a chunk, and
    for the bytes that the store returns at once. `cached_as` (segment id, CRC32C of its `.log`) is
    the key of its chunks in the cache, if there is one.
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
        """The whole chunks [chunk, until), checked. Raises NotFound if the object does not
        exist.
        """

    async def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), joined; for small ranges."""
        async with closing_stream(self.stream(start, end)) as stream:
            return b"".join([part async for parts in stream for part in parts])

    async def fetch_ahead(self, start: int, end: int) -> None:
        """Fetch the chunks of [start, end), `end` limited to the size, into the cache, if there is
        one.
        """
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
        """Fetch the chunks [chunk, until) by one request, for which readers of them wait from now
        on.
        """
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
        """The bytes [start, end), `end` limited to the size, chunk by chunk. The same reader has
        read the bytes below `read_before` before.

        Raises CorruptData(key, position) at a chunk that fails its checksum or is missing,
        InvalidRequest for an impossible range.
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
        """The part of a whole chunk that is in [start, end) of the object."""
        at = chunk * self._chunk_bytes
        if at >= start and at + self._chunk_bytes <= end:
            return parts
        return cut(parts, max(0, start - at), end - at)

    def _chunk_key(self, chunk: int) -> ChunkKey:
        assert self._cached_as is not None, "a cache needs `cached_as`"
        return (*self._cached_as, chunk)

    def _until_expected(self, chunk: int, until: int) -> int:
        """The first chunk after `chunk` that is cached or being fetched, at most `until`."""
        if self._cache is not None:
            for following in range(chunk + 1, until):
                if self._cache.expects(self._chunk_key(following)):
                    return following
        return until

    async def _fetch(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """The whole verified chunks [chunk, until), by one request; they are added to the cache."""
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
                    # Announce the next chunk only now: other readers must not wait for this one.
                    chunk += 1
                    ours = chunk < until and cache.begin(self._chunk_key(chunk))
        finally:
            if ours:
                cache.give_up(self._chunk_key(chunk))

    async def _fetch_verified(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """Fetch chunks as `_fetch_present` does, but with CorruptData if the object does not
        exist.
        """
        try:
            async with closing_stream(self._fetch_present(chunk, until)) as verified:
                async for parts in verified:
                    yield parts
        except NotFound:
            raise gone(self.key) from None

    def _corrupt(self, message: str, position: int) -> CorruptData:
        return CorruptData(message, source=self.key, position=position)


class VerifiedObject(ChunkedObject):
    """An object of a segment that Strandline copied; the manifest has the checksums of its
    chunks.
    """

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
        """The whole verified chunks [chunk, until), by one request, in the store's pieces."""
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
                        raise self._corrupt("the store sent more bytes than requested", end)
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
                f"the object ends here, but {size} bytes are recorded",
                chunk * chunk_bytes + sum(map(len, held)),
            )

    def _check(self, chunk: int, computed: int) -> None:
        recorded = self._checksums.chunks[chunk]
        if computed != recorded:
            at = chunk * self._chunk_bytes
            size = min(self._chunk_bytes, self.size_bytes - at)
            raise self._corrupt(
                f"the {size} bytes from here on fail their CRC32C: {recorded:08x} is "
                f"recorded, but {computed:08x} computed",
                at,
            )


def gone(key: str) -> CorruptData:
    """The error for a missing object of a finished segment. It is CorruptData, since NotFound would
    mean that there is no such segment or index.
    """
    return CorruptData(
        "it is not in the store, although the metadata has its segment: this node's metadata lags, "
        "or the object was deleted by hand (`strandline stores verify` finds all such objects)",
        source=key,
        position=0,
    )


def cut(parts: Parts, start: int, end: int) -> Parts:
    """The bytes [start, end) of the joined parts; `end` may be above their size."""
    found: list[Buffer] = []
    at = 0
    for part in parts:
        wanted = memoryview(part)[max(0, start - at) : max(0, end - at)]
        if wanted:
            found.append(wanted)
        at += len(part)
    return found
