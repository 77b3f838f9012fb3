"""Finds the first tiered record at or after a time: Kafka's findOffsetByTimestamp over the tier.

The search walks the served segments in offset order, skips them by their maximum timestamp without
reading, and picks the batch to decode by the batches' headers. Transaction markers count, as in
Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, RetryLater
from kafka_formats.record_batch import (
    LOG_OVERHEAD,
    BatchHeader,
    Record,
    decode_records,
    parse_header,
    records_within,
)
from kafka_formats.time_index import TimeIndex
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.scanner import Breathe
from rlm.data_plane.read_request import ReadableSegment, RecordsRequest, SegmentPiece
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.format.manifest import IndexType
from rlmm.rows.queries import ServedSegment
from rlmm.segment import SegmentState

STEPS_PER_YIELD = 32
"""The look-ups made on the event loop before others may run."""

SOURCE = "tiered records"


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record's offset, its timestamp, and its batch's leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TimestampSearch:
    """Searches from `from_offset` on. InvalidRequest (field copier.batch_bytes_max) if a batch that
    has to be decoded decompresses to more than `batch_bytes_max`.
    """

    reader: ResolvedReads
    partition: TopicIdPartition
    breathe: Breathe
    batch_bytes_max: int
    from_offset: int = 0

    async def first_at_or_after(self, timestamp_ms: int) -> FoundRecord | None:
        """The first record at or after the time; None if the tier has none: ask the broker for its
        local log.
        """
        async for served in self._served():
            if served[1].max_timestamp_ms < timestamp_ms:
                continue
            found = await self._while_there(served, self._in_segment(served, timestamp_ms))
            if found is not None:
                return found
        return None

    async def with_max_timestamp(self) -> FoundRecord | None:
        """The first record with the largest timestamp in the tier; None if nothing is tiered.

        A row has the largest timestamp of its whole segment, of which only a part may be served.
        So it is an upper bound, and segments are searched, highest bound first, until no bound is
        above the best record.
        """
        bounds = [(row.max_timestamp_ms, at.first_offset) async for at, row in self._served()]
        best: FoundRecord | None = None
        for bound, first_offset in sorted(bounds, key=lambda each: (-each[0], each[1])):
            if bound < (0 if best is None else best.timestamp_ms):
                break
            served = self.reader.served_from(self.partition, first_offset)
            if served is None:
                continue
            found = await self._while_there(served, self._in_segment(served, bound))
            found = found or await self._while_there(served, self._largest_in(served))
            if found is not None and found.timestamp_ms >= 0:
                best = found if best is None or _is_before(found, best) else best
        return best

    async def _while_there(
        self, served: ServedSegment, search: Awaitable[FoundRecord | None]
    ) -> FoundRecord | None:
        """The result of a search in a segment. RetryLater if the segment is being deleted by now:
        it says nothing of the time that was asked for.
        """
        try:
            return await search
        except (NotFound, CorruptData) as error:
            id_ = served[1].segment_id
            row = self.reader.metadata.find_segment(id_.id)
            if row is not None and row.state is SegmentState.COPY_SEGMENT_FINISHED:
                raise
            raise RetryLater(f"{id_} was deleted while it was searched: ask again") from error

    async def _served(self) -> AsyncIterator[ServedSegment]:
        """The served segments, each by its own look-up, since the caller awaits in between."""
        offset, steps = self.from_offset, 0
        while (served := self.reader.served_from(self.partition, offset)) is not None:
            yield served
            offset, steps = served[0].last_offset + 1, steps + 1
            if steps % STEPS_PER_YIELD == 0:
                await self.breathe()  # thousands of look-ups: let other tasks run

    async def _in_segment(self, served: ServedSegment, timestamp_ms: int) -> FoundRecord | None:
        piece = self.reader.piece(served)
        start = max(piece.first_offset, await self._index_floor(piece.segment, timestamp_ms))
        if start > piece.valid_until:
            return None
        async for data in self._whole_batches(served, piece, start):
            found = await asyncio.to_thread(
                search_batches, data, timestamp_ms, piece, self.batch_bytes_max
            )
            if found is not None:
                return found
        return None

    async def _largest_in(self, served: ServedSegment) -> FoundRecord | None:
        """The first record with the largest timestamp of the served part; reads all of it."""
        piece = self.reader.piece(served)
        best: FoundRecord | None = None
        async for data in self._whole_batches(served, piece, piece.first_offset):
            found = await asyncio.to_thread(largest_in_batches, data, piece, self.batch_bytes_max)
            if found is not None and (best is None or _is_before(found, best)):
                best = found
        return best

    async def _whole_batches(
        self, served: ServedSegment, piece: SegmentPiece, start: int
    ) -> AsyncIterator[bytes]:
        """The stored bytes from the batch that contains `start` on, cut between batches."""
        request = RecordsRequest(start, max(served[1].size_bytes, 1))
        pending = bytearray()
        async for data in self.reader.of_pieces(request, _OnePiece(piece)):
            pending += data
            whole = _whole_bytes(pending)
            if whole:
                yield bytes(pending[:whole])
                del pending[:whole]

    async def _index_floor(self, segment: ReadableSegment, timestamp_ms: int) -> int:
        data = bytearray()
        id_ = segment.segment_id.id
        async for piece in self.reader.open_index(id_, IndexType.TIMESTAMP):
            data += piece
        index = TimeIndex.parse(bytes(data), base_offset=segment.start_offset, source=str(id_))
        # The entry says that no record up to here is later: the entry of the ms before is safe.
        return index.lookup(timestamp_ms - 1)[1]


@dataclass(frozen=True, slots=True)
class _OnePiece:
    """A resolver that knows one piece."""

    piece: SegmentPiece

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        return self.piece if offset <= self.piece.valid_until else None


def search_batches(
    data: bytes, timestamp_ms: int, piece: SegmentPiece, bytes_max: int
) -> FoundRecord | None:
    """The first record of whole batches that is at or after the time, within the piece."""
    for at, header in _headers(data):
        if header.max_timestamp < timestamp_ms:
            continue
        for found in _records(data, at, header, piece, bytes_max):
            if found.timestamp_ms >= timestamp_ms:
                return found
    return None


def largest_in_batches(data: bytes, piece: SegmentPiece, bytes_max: int) -> FoundRecord | None:
    """The first record with the largest timestamp of whole batches, within the piece."""
    best: FoundRecord | None = None
    # In the order of their largest timestamps, so that few are decoded.
    for at, header in sorted(_headers(data), key=lambda each: (-each[1].max_timestamp, each[0])):
        if best is not None and header.max_timestamp < best.timestamp_ms:
            break
        for found in _records(data, at, header, piece, bytes_max):
            if best is None or _is_before(found, best):
                best = found
    return best


def _records(
    data: bytes, at: int, header: BatchHeader, piece: SegmentPiece, bytes_max: int
) -> Iterator[FoundRecord]:
    """The records of a batch that are within the piece. A batch of one record is answered from its
    header, so that a very large one is not decompressed for its timestamp.
    """
    if (header.record_count, header.last_offset_delta) == (1, 0):
        records = iter([Record(header.base_offset, header.max_timestamp, None, None)])
    else:
        batch = memoryview(data)[at : at + header.size_bytes]
        found = records_within(batch, header, source=SOURCE, position=at, bytes_max=bytes_max)
        if found is None:
            raise InvalidRequest(
                f"the batch at offset {header.base_offset} decompresses to more than {bytes_max} "
                "bytes: raise the limit to search it by time",
                field="copier.batch_bytes_max",
            )
        records = decode_records(found, header, source=SOURCE, position=at)
    for record in records:
        if piece.first_offset <= record.offset <= piece.valid_until:
            yield FoundRecord(record.offset, record.timestamp_ms, header.partition_leader_epoch)


def _is_before(found: FoundRecord, best: FoundRecord) -> bool:
    return (-found.timestamp_ms, found.offset) < (-best.timestamp_ms, best.offset)


def _headers(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    at = 0
    while at < len(data):
        header = parse_header(data, at, source=SOURCE, position=at)
        yield at, header
        at += header.size_bytes


def _whole_bytes(data: bytearray) -> int:
    """The length in bytes of the whole batches at the start of the data."""
    at = 0
    while at + LOG_OVERHEAD <= len(data):
        size = LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
        if at + size > len(data):
            break
        at += size
    return at
