"""What the next segment of a sequential read needs first, fetched while the one before it ends.

Only caches are filled: what serves the next offset is asked anew when its turn comes, and what is
wrong with it is heard then. A read has one such fetch under way at most, of a manifest and, where
chunks are kept, `AHEAD_BYTES`; it ends with the read.
"""

from __future__ import annotations

import asyncio
import contextlib

from kafka_formats.errors import StrandlineError
from rlm.data_plane.read_request import SegmentPiece, SegmentResolver
from rlm.data_plane.segment_reader import SegmentReader

AHEAD_BYTES = 1024 * 1024
"""Of the next log; more than a reader takes while that log's own first request is answered."""

NEAR_END_BYTES = 8 * 1024 * 1024
"""With so much left of a log its last request has been sent."""


class ReadAhead:
    """Of one read of records. Asks the resolver one question at a time, as its port demands."""

    def __init__(self, reader: SegmentReader, resolver: SegmentResolver) -> None:
        self._reader = reader
        self._resolver = resolver
        self._fetching: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._answered.set()
        self._begun_for = -1
        self._unused = False

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The resolver's answer of now."""
        await self._answered.wait()
        if self._unused and offset == self._begun_for:
            self._unused = False
            self._reader.counts.ahead_used += 1
        return await self._resolver.piece_at(offset)

    def begin(self, offset: int) -> None:
        """What serves `offset` is wanted soon: once for each, none while another is under way."""
        if offset != self._begun_for and (self._fetching is None or self._fetching.done()):
            self._count_wasted()
            self._begun_for = offset
            self._answered.clear()
            self._fetching = asyncio.create_task(self._fetch(offset))

    async def close(self) -> None:
        """No byte of it follows."""
        self._count_wasted()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))
            if not self._fetching.cancelled():
                self._fetching.result()  # our own bugs, if it ended in one

    def _count_wasted(self) -> None:
        if self._unused:
            self._unused = False
            self._reader.counts.ahead_wasted += 1

    async def _fetch(self, offset: int) -> None:
        with contextlib.suppress(StrandlineError):  # it is met again, see above
            try:
                piece = await self._resolver.piece_at(offset)
            finally:
                self._answered.set()
            if piece is not None:
                self._unused = True
                at_start = piece.segment.start_offset >= offset
                await self._reader.warm(piece.segment, AHEAD_BYTES if at_start else 0)
