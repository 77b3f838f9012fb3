"""Reads ranges of the `.log` of a segment that Aiven's plug-in wrote; only the chunks of the range
are fetched, decrypted and decompressed.

The tag of an encrypted chunk proves its bytes. An unencrypted log has no checksums but those of its
batches: so whole batches are read, and each is compared with its CRC before its bytes are returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from kafka_formats.batch_order import BatchOrder
from kafka_formats.batch_scan import BATCH_BYTES_MAX, BatchRun, BatchScanner
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.record_batch import LOG_OVERHEAD
from rlm.data_plane.chunk_cache import ChunkCache
from rlm.data_plane.chunk_transforms import ChunkTransforms
from rlm.data_plane.read_request import AivenSegment
from rlm.data_plane.verified_chunks import WINDOW_BYTES, ChunkedObject, Parts, cut
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream

NO_CHECKSUM = -1
"""Value used in the chunk cache's keys for the CRC32C of the log, which is unknown here."""


class LogBytes(Protocol):
    """The `.log` of a segment; all bytes that it returns were checked."""

    key: str
    size_bytes: int

    async def fetch_ahead(self, start: int, end: int) -> None:
        """Fetch [start, end), `end` limited to the size, into the chunk cache, if there is one."""

    def stream(
        self,
        start: int,
        end: int,
        *,
        first_window_bytes: int = WINDOW_BYTES,
        read_before: int = 0,
    ) -> AsyncIterator[Parts]:
        """The bytes [start, end), `end` limited to the size. The same reader has read the bytes
        below `read_before` before. Raises CorruptData if the bytes are not as written,
        InvalidRequest for an impossible range.
        """


class ChunkedLog(ChunkedObject):
    """The log, decrypted and decompressed by chunks. Each reader needs memory for one chunk as
    stored and one as it was.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        segment: AivenSegment,
        transforms: ChunkTransforms,
        cache: ChunkCache | None,
    ) -> None:
        super().__init__(
            key,
            transforms.chunks.original_bytes,
            transforms.chunks.original_chunk_bytes,
            cache if transforms.authenticates else None,  # only proven bytes may be cached
            (segment.segment_id, NO_CHECKSUM),
        )
        self._store = store
        self._transforms = transforms

    async def _fetch_present(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """The original bytes of the chunks [chunk, until), by one request."""
        size = self._chunk_bytes
        wanted = list(self._transforms.chunks.chunks(chunk * size, until * size))
        start, end = wanted[0].position, wanted[-1].position + wanted[-1].stored_bytes
        held = bytearray()
        done = 0
        async with closing_stream(self._store.get(self.key, start=start, end=end)) as pieces:
            async for piece in pieces:
                held += piece
                while done < len(wanted) and len(held) >= wanted[done].stored_bytes:
                    stored = bytes(held[: wanted[done].stored_bytes])
                    del held[: wanted[done].stored_bytes]
                    yield (await asyncio.to_thread(self._transforms.undone, wanted[done], stored),)
                    done += 1
        if done < len(wanted):
            raise self._corrupt(
                f"the object ends here, but its manifest has at least {end} bytes",
                wanted[done].position + len(held),
            )
        if held:
            raise self._corrupt("the store sent more bytes than requested", end)


class BatchCheckedLog:
    """A log of chunks without tags. `floor(position)` is the position of a batch at or before
    `position`, from the offset index.
    """

    def __init__(
        self, log: ChunkedLog, segment: AivenSegment, floor: Callable[[int], Awaitable[int]]
    ) -> None:
        self.key = log.key
        self.size_bytes = log.size_bytes
        self._log = log
        self._segment = segment
        self._floor = floor

    async def fetch_ahead(self, start: int, end: int) -> None:
        """Do nothing: chunks without a tag are not cached."""

    async def stream(
        self,
        start: int,
        end: int,
        *,
        first_window_bytes: int = WINDOW_BYTES,
        read_before: int = 0,
    ) -> AsyncIterator[Parts]:
        """See `LogBytes`. A batch is returned once it is whole, its CRC is right, and the next
        batch begins right after it.
        """
        end = min(end, self.size_bytes)
        if not 0 <= start <= max(end, 0):
            raise InvalidRequest(
                f"bytes {start} to {end} are not a range of {self.size_bytes} bytes", field="range"
            )
        if start == end:
            return
        at = await self._floor(start)
        # Bounded, since for a damaged length the scanner would keep the whole rest of the log.
        scanner = BatchScanner(self.key, batch_bytes_max=BATCH_BYTES_MAX, position=at)
        window = min(first_window_bytes, end - start) + start - at
        order = BatchOrder(self._segment.start_offset, self._segment.end_offset, self.key)
        chunks = self._log.stream(
            at, self.size_bytes, first_window_bytes=window, read_before=read_before
        )
        held: BatchRun | None = None  # kept until the next batch confirms the place of its last
        async with closing_stream(chunks) as stream:
            async for parts in stream:
                for run in (run for part in parts for run in scanner.feed_runs(part)):
                    order.check(run)
                    if held is not None and (asked := _asked(held, start, end)):
                        yield asked
                    held = run
                if held is not None and self._shows(held, end):
                    break
        if scanner.position < end:
            scanner.finish()
            raise CorruptData(
                f"the log's batches end here, but the log has {self.size_bytes} bytes",
                source=self.key,
                position=scanner.position,
            )
        if held is not None and (asked := _asked(held, start, end)):
            yield asked

    def _shows(self, run: BatchRun, end: int) -> bool:
        """True if the run confirms the places of all batches below `end`: its last batch begins at
        or after `end`, or is the last of the log.
        """
        behind = run.position + len(run.data)
        return behind == self.size_bytes or behind - LOG_OVERHEAD - run.headers[-1][1] >= end


def _asked(run: BatchRun, start: int, end: int) -> Parts:
    return cut((run.data,), max(0, start - run.position), end - run.position)
