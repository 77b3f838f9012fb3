"""Reads log bytes, indexes, and records across segments from finished segments. Runs in a worker.

All returned bytes passed their checksum. Batches that end below a piece's `first_offset` or above
its `valid_until` are not returned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchScanner, ScannedBatch
from kafka_formats.errors import CorruptData, InternalError, InvalidRequest
from kafka_formats.offset_index import floor_position
from kafka_formats.record_batch import BatchHeader
from rlm.data_plane.json_lines import JsonLines
from rlm.data_plane.read_ahead import NEAR_END_BYTES, RangesAhead, ReadAhead
from rlm.data_plane.read_committed import CommittedView, committed_view
from rlm.data_plane.read_request import (
    IndexRequest,
    Isolation,
    LogRequest,
    RecordFormat,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
    SegmentResolver,
)
from rlm.data_plane.segment_reader import SegmentReader
from rlm.data_plane.verified_chunks import Parts
from rlm.format.manifest import CHUNK_BYTES
from rsm_backends.streams import closing_stream

_INT64_MAX = 2**63 - 1


async def read_log(
    reader: SegmentReader, request: LogRequest, ahead: RangesAhead
) -> AsyncIterator[Parts]:
    """The requested bytes of a `.log`. Raises InvalidRequest for an impossible range."""
    log = await reader.log(request.segment)
    end = log.size_bytes if request.end is None else request.end
    read_before = ahead.read_before(request, log)
    stream = log.stream(request.start, end, read_before=read_before)
    async with closing_stream(stream):
        async for parts in stream:
            yield parts
    ahead.took(request, log)


async def read_index(reader: SegmentReader, request: IndexRequest) -> AsyncIterator[Parts]:
    """One whole index, in pieces. Raises NotFound if the segment has none of this type."""
    data = memoryview(await reader.index(request.segment, request.index))
    for at in range(0, len(data), CHUNK_BYTES):
        yield (data[at : at + CHUNK_BYTES],)


class RecordsRead:
    """One read of records, from its first offset to `max_bytes` or the end of the tier."""

    def __init__(
        self,
        reader: SegmentReader,
        json: JsonLines,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None],
    ) -> None:
        if not 0 <= request.offset <= _INT64_MAX:
            raise InvalidRequest(f"{request.offset} is not a valid offset", field="offset")
        if request.max_bytes < 1:
            raise InvalidRequest(f"must be at least 1, not {request.max_bytes}", field="max_bytes")
        self._reader = reader
        self._json = json
        self._request = request
        self._resolver = resolver
        self._ahead = ReadAhead(reader, resolver)
        self._on_end = on_end
        self._next_offset = request.offset
        self._batches = 0
        self._stored_bytes = 0
        self._dropped_bytes = 0
        self._given = False
        self._full = False
        self._unstable = False  # the next batch's transaction is not decided yet
        self._jumped = False
        self._lost: list[tuple[int, int]] = []
        self._undecided_records = 0

    async def pieces(self) -> AsyncIterator[Parts]:
        """Whole batches, or whole lines. A piece may end anywhere."""
        try:
            async with closing_stream(self._pieces()) as pieces:
                async for parts in pieces:
                    yield parts
        finally:
            await self._ahead.close()

    async def _pieces(self) -> AsyncIterator[Parts]:
        while not self._full and not self._unstable:
            piece = await self._ahead.piece_at(self._next_offset)
            if piece is None:
                break
            if piece.valid_until < self._next_offset:
                raise InternalError(
                    f"the piece for offset {self._next_offset} ends at {piece.valid_until}"
                )
            # After a lost range a segment may begin with batches outside the lineage: skip them.
            if piece.first_offset > self._next_offset:
                self._lost.append((self._next_offset, piece.first_offset - 1))
                self._next_offset = piece.first_offset
            async with closing_stream(self._read_piece(piece)) as data:
                async for part in data:
                    yield part
        self._on_end(
            RecordsEnd(
                self._next_offset,
                self._batches,
                self._stored_bytes,
                at_end=not self._full,
                lost=tuple(self._lost),
                undecided_records=self._undecided_records,
            )
        )

    async def _read_piece(self, piece: SegmentPiece) -> AsyncIterator[Parts]:
        committed = None
        if self._request.isolation is Isolation.READ_COMMITTED:
            committed = await committed_view(self._reader, self._resolver, piece, self._next_offset)
        position = await self._start_position(piece)
        log = await self._reader.log(piece.segment)
        scanner = BatchScanner(log.key, batch_bytes_max=ANY_BATCH_BYTES, position=position)
        self._jumped = position > 0
        stream = log.stream(
            scanner.position,
            log.size_bytes,
            first_window_bytes=max(0, self._bytes_left) + 2 * CHUNK_BYTES,
        )
        async with closing_stream(stream) as chunks:
            async for chunk in chunks:
                batches = self._proven(_scanned(scanner, chunk), log.key)
                taken, more = self._take(batches, piece.valid_until, committed)
                left = log.size_bytes - scanner.position
                if more and left < NEAR_END_BYTES and left < self._bytes_left:
                    self._ahead.begin(piece.valid_until + 1)
                async with closing_stream(self._formatted(taken, log.key)) as parts:
                    async for part in parts:
                        yield part
                if not more:
                    break
            else:
                scanner.finish()
                more = True
        if committed is not None:
            self._undecided_records += committed.undecided_records
        if not self._full and not self._unstable:
            self._next_offset = max(self._next_offset, piece.valid_until + 1)

    @property
    def _bytes_left(self) -> int:
        """The bytes that may still be read. Dropped batches count too, since reading them takes as
        long.
        """
        return self._request.max_bytes - self._stored_bytes - self._dropped_bytes

    def _proven(self, batches: Iterable[ScannedBatch], source: str) -> Iterator[ScannedBatch]:
        """Raise CorruptData unless the first batch after a jump into the log begins at or below the
        next offset.

        Otherwise the index with its position is wrong, and records would be skipped.
        """
        for batch in batches:
            if self._jumped and batch.header.base_offset > self._next_offset:
                raise CorruptData(
                    f"an index has this batch for offset {self._next_offset}, but it begins at "
                    f"{batch.header.base_offset}",
                    source=source,
                    position=batch.position,
                )
            self._jumped = False
            yield batch

    def _take(
        self, batches: Iterable[ScannedBatch], valid_until: int, committed: CommittedView | None
    ) -> tuple[list[ScannedBatch], bool]:
        """The batches to send, and True if the read goes on after them in this piece."""
        taken: list[ScannedBatch] = []
        for batch in batches:
            header = batch.header
            if header.last_offset < self._next_offset:
                continue
            if header.last_offset > valid_until:
                return taken, False
            if committed is not None and header.last_offset >= committed.stable_end:
                self._unstable = True
                return taken, False
            size = header.size_bytes
            if self._given and size > self._bytes_left:
                self._full = True
                return taken, False
            if committed is not None and committed.drops(header):
                self._dropped_bytes += size
                self._next_offset = header.last_offset + 1
                continue
            self._batches += 1
            self._given = self._given or self._surely_gives(header)
            self._stored_bytes += size
            self._next_offset = header.last_offset + 1
            taken.append(batch)
        return taken, True

    def _surely_gives(self, header: BatchHeader) -> bool:
        """True if the batch certainly has a record for the reader. JSON has no line for markers and
        emptied batches, and a page without lines would look like the end.
        """
        if self._request.format is RecordFormat.BATCHES:
            return True
        whole = header.record_count > header.last_offset_delta
        at_hand = whole or header.base_offset >= self._request.offset
        return not header.is_control and header.record_count > 0 and at_hand

    async def _formatted(self, batches: list[ScannedBatch], source: str) -> AsyncIterator[Parts]:
        if self._request.format is RecordFormat.BATCHES:
            if batches:
                yield (b"".join([batch.data for batch in batches]),)
            return
        for batch in batches:
            if batch.header.is_control:
                continue
            lines = self._json.of(batch, from_offset=self._request.offset, source=source)
            async with closing_stream(lines) as pieces:
                async for piece in pieces:
                    yield (piece,)

    async def _start_position(self, piece: SegmentPiece) -> int:
        """The position of the batch that contains the next offset, or of one before it."""
        segment = piece.segment
        if self._next_offset <= segment.start_offset:
            return 0
        index = await self._reader.chunk_offset_index(segment)
        return floor_position(index, self._next_offset - segment.start_offset)


def _scanned(scanner: BatchScanner, parts: Parts) -> Iterator[ScannedBatch]:
    for part in parts:
        yield from scanner.feed(part)
