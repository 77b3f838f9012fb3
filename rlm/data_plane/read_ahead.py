"""Fetches ahead the bytes that a sequential reader will request next. For a read of records these
are the next segment's first bytes, near the end of the current one; for a log that is read in
ranges, those that `ranges_in_order.py` chooses.

This only fills caches: the reader resolves and requests the bytes itself later, and gets any errors
then. A read of records has at most one fetch ahead in flight, of a manifest and, if chunks are
cached, of `AHEAD_BYTES`; it ends with the read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kafka_formats.errors import StrandlineError
from rlm.data_plane.aiven_log import LogBytes
from rlm.data_plane.ranges_in_order import Ahead, AskedRange, RangesInOrder
from rlm.data_plane.read_request import LogRequest, SegmentPiece, SegmentResolver
from rlm.data_plane.segment_reader import SegmentReader
from rlm.format.manifest import IndexType

AHEAD_BYTES = 1024 * 1024
"""Bytes of the next log to fetch; a reader reads less during that log's own first request."""

NEAR_END_BYTES = 8 * 1024 * 1024
"""Number of unread bytes of a log below which the next log is fetched: the last request for this
log has been sent by then.
"""


class ReadAhead:
    """Fetches ahead for one read of records. It calls the resolver once at a time, as that
    requires.
    """

    def __init__(self, reader: SegmentReader, resolver: SegmentResolver) -> None:
        self._reader = reader
        self._resolver = resolver
        self._fetching: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._answered.set()
        self._begun_for = -1

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The resolver's answer for `offset` now."""
        await self._answered.wait()
        return await self._resolver.piece_at(offset)

    def begin(self, offset: int) -> None:
        """Start a fetch for the read of `offset`, unless one was started or is still in flight."""
        if offset != self._begun_for and (self._fetching is None or self._fetching.done()):
            self._begun_for = offset
            self._answered.clear()
            self._fetching = asyncio.create_task(self._fetch(offset))

    async def close(self) -> None:
        """Cancel the fetch; the read is over."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))
            if not self._fetching.cancelled():
                self._fetching.result()  # raises the exception of a bug

    async def _fetch(self, offset: int) -> None:
        with contextlib.suppress(StrandlineError):  # the reader gets it itself later
            try:
                piece = await self._resolver.piece_at(offset)
            finally:
                self._answered.set()
            if piece is not None:
                at_start = piece.segment.start_offset >= offset
                await self._reader.warm(piece.segment, AHEAD_BYTES if at_start else 0)


class RangesAhead:
    """Fetches ahead for logs that are read in ranges. One per worker; the chunk cache limits the
    memory.
    """

    def __init__(self, reader: SegmentReader, bytes_max: int, now_ms: Callable[[], int]) -> None:
        self._reader = reader
        self._ranges = RangesInOrder(bytes_max)
        self._now_ms = now_ms
        self._fetching: set[asyncio.Task[None]] = set()

    def read_before(self, request: LogRequest, log: LogBytes) -> int:
        """The end of the bytes of this log that the same reader has read; 0 for a new reader."""
        return self._ranges.read_before(_asked(request, log))

    def took(self, request: LogRequest, log: LogBytes) -> None:
        """Start to fetch the next bytes, after a reader has read the whole range of `request`."""
        ahead = self._ranges.took(_asked(request, log), self._now_ms() / 1000)
        if ahead is not None:
            task = asyncio.create_task(self._fetch(request, log, ahead))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)

    async def close(self) -> None:
        """Cancel all fetches."""
        for task in tuple(self._fetching):
            task.cancel()
        await asyncio.gather(*self._fetching, return_exceptions=True)

    async def _fetch(self, request: LogRequest, log: LogBytes, ahead: Ahead) -> None:
        with contextlib.suppress(StrandlineError):  # the reader gets it itself later
            await log.fetch_ahead(ahead.start, ahead.end)
            if ahead.following_end and request.following is not None:
                # A broker requests the indexes of a segment before its first bytes.
                await self._reader.index(request.following, IndexType.OFFSET)
                await self._reader.warm(request.following, ahead.following_end)


def _asked(request: LogRequest, log: LogBytes) -> AskedRange:
    end = log.size_bytes if request.end is None else min(request.end, log.size_bytes)
    following = None if request.following is None else request.following.segment_id
    return AskedRange(request.segment.segment_id, request.start, end, log.size_bytes, following)
