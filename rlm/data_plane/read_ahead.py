"""Fetches the first bytes of a sequential read's next segment while the current one ends.

Only caches are filled: the read resolves the next offset again at its turn, and meets errors then.
A read has at most one such fetch under way, of a manifest and, if chunks are kept, `AHEAD_BYTES`;
it ends with the read.
"""

from __future__ import annotations

import asyncio
import contextlib

from kafka_formats.errors import StrandlineError
from rlm.data_plane.read_request import SegmentPiece, SegmentResolver
from rlm.data_plane.segment_reader import SegmentReader

AHEAD_BYTES = 1024 * 1024
"""Bytes of the next log; a reader takes less while that log's own first request is answered."""

NEAR_END_BYTES = 8 * 1024 * 1024
"""With so much left of a log its last request has been sent."""


class ReadAhead:
    """One per read of records. Asks the resolver one question at a time, as its port demands."""

    def __init__(self, reader: SegmentReader, resolver: SegmentResolver) -> None:
        self._reader = reader
        self._resolver = resolver
        self._fetching: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._answered.set()
        self._begun_for = -1
        self._unused = False

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The resolver's present answer."""
        await self._answered.wait()
        if self._unused and offset == self._begun_for:
            self._unused = False
            self._reader.counts.ahead_used += 1
        return await self._resolver.piece_at(offset)

    def begin(self, offset: int) -> None:
        """Fetch for the read of `offset`: once each, and not while another fetch is under way."""
        if offset != self._begun_for and (self._fetching is None or self._fetching.done()):
            self._count_wasted()
            self._begun_for = offset
            self._answered.clear()
            self._fetching = asyncio.create_task(self._fetch(offset))

    async def close(self) -> None:
        """End with the read."""
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
