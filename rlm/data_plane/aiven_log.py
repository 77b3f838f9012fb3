"""The `.log` of a segment that Aiven's plug-in wrote, by ranges: only the chunks of a range are
fetched and undone.

An encrypted chunk proves itself by its tag. Of others nothing but the batches has checksums: so
they are read from a batch's first byte to the end of the last one, and each is compared with its
CRC before a byte of it is given out.
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
"""The value in the place of the log's CRC32C in a cache's keys."""


class LogBytes(Protocol):
    """A segment's log, of which only checked bytes are given out."""

    key: str
    size_bytes: int

    async def fetch_ahead(self, start: int, end: int) -> None:
        """Leave [start, end), `end` cut to the size, to the next reader, if chunks are kept."""

    def stream(
        self,
        start: int,
        end: int,
        *,
        first_window_bytes: int = WINDOW_BYTES,
        read_before: int = 0,
    ) -> AsyncIterator[Parts]:
        """Bytes [start, end), `end` cut to the size; up to `read_before` the same reader has read
        them already. CorruptData: not as they were written; InvalidRequest: an impossible range.
        """


class ChunkedLog(ChunkedObject):
    """The log's chunks, undone. Memory: a chunk as stored and as it was, for each reader."""

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
            cache if transforms.authenticates else None,  # a cache keeps proven bytes only
            (segment.segment_id, NO_CHECKSUM),
        )
        self._store = store
        self._transforms = transforms

    async def _fetch_present(self, chunk: int, until: int) -> AsyncIterator[Parts]:
        """The chunks [chunk, until), undone, by one request."""
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
                f"the object ends here; {end} bytes of it are in the manifest",
                wanted[done].position + len(held),
            )
        if held:
            raise self._corrupt("the store sent more than was asked for", end)


class BatchCheckedLog:
    """A log of chunks without tags. `floor(position)` is the position of some batch at or before a
    position: the offset index tells it.
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
        """Nothing: chunks that no tag proves are not kept."""

    async def stream(
        self,
        start: int,
        end: int,
        *,
        first_window_bytes: int = WINDOW_BYTES,
        read_before: int = 0,
    ) -> AsyncIterator[Parts]:
        """See `LogBytes`. A batch is given out once it is whole, its CRC is right, and the next one
        begins behind it.
        """
        end = min(end, self.size_bytes)
        if not 0 <= start <= max(end, 0):
            raise InvalidRequest(
                f"bytes {start} to {end} are not a range of {self.size_bytes} bytes", field="range"
            )
        if start == end:
            return
        at = await self._floor(start)
        # Bounded, since a damaged length would make it hold all the rest of the log.
        scanner = BatchScanner(self.key, batch_bytes_max=BATCH_BYTES_MAX, position=at)
        window = min(first_window_bytes, end - start) + start - at
        order = BatchOrder(self._segment.start_offset, self._segment.end_offset, self.key)
        chunks = self._log.stream(
            at, self.size_bytes, first_window_bytes=window, read_before=read_before
        )
        held: BatchRun | None = None  # until the next batch shows that its last one is in its place
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
                f"the log's batches end here, but it has {self.size_bytes} bytes",
                source=self.key,
                position=scanner.position,
            )
        if held is not None and (asked := _asked(held, start, end)):
            yield asked

    def _shows(self, run: BatchRun, end: int) -> bool:
        """True if the run shows that the batches up to `end` are in their places: its last one is
        behind, or the log's last.
        """
        behind = run.position + len(run.data)
        return behind == self.size_bytes or behind - LOG_OVERHEAD - run.headers[-1][1] >= end


def _asked(run: BatchRun, start: int, end: int) -> Parts:
    return cut((run.data,), max(0, start - run.position), end - run.position)
