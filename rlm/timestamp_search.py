"""The first tiered record at or after a time: Kafka's findOffsetByTimestamp over the tier.

Walks what is served in offset order, skips segments by their maximum timestamp without reading
them, and lets the batches' own headers choose the batch to decode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kafka_formats.record_batch import LOG_OVERHEAD, iter_records, parse_header
from kafka_formats.time_index import TimeIndex
from rlm.read_request import IndexType, RecordsRequest, SegmentPiece, TieredSegment
from rlm.resolved_reads import ResolvedReads
from rlm.scanner import Breathe
from rlmm.queries import ServedSegment
from rlmm.segment import TopicIdPartition

STEPS_PER_YIELD = 32
"""Look-ups made in one go on the event loop."""

SOURCE = "tiered records"


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record's offset, its timestamp, and its batch's leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TimestampSearch:
    """Searches in one partition."""

    reader: ResolvedReads
    partition: TopicIdPartition
    breathe: Breathe

    async def first_at_or_after(self, timestamp_ms: int) -> FoundRecord | None:
        """None when no tiered record is that young: ask the broker for the local rest."""
        async for served in self._served():
            if served[1].max_timestamp_ms < timestamp_ms:
                continue
            found = await self._in_segment(served, timestamp_ms)
            if found is not None:
                return found
        return None

    async def with_max_timestamp(self) -> FoundRecord | None:
        """The first record with the largest timestamp in the tier; None when nothing is tiered."""
        largest = -1
        async for _, row in self._served():
            largest = max(largest, row.max_timestamp_ms)
        return await self.first_at_or_after(largest) if largest >= 0 else None

    async def _served(self) -> AsyncIterator[ServedSegment]:
        """Each look-up is one of its own: what is done with an answer takes its time."""
        offset, steps = 0, 0
        while (served := self.reader.served_from(self.partition, offset)) is not None:
            yield served
            offset, steps = served[0].last_offset + 1, steps + 1
            if steps % STEPS_PER_YIELD == 0:
                await self.breathe()  # thousands of look-ups: let others run

    async def _in_segment(self, served: ServedSegment, timestamp_ms: int) -> FoundRecord | None:
        piece = self.reader.piece(served)
        first_offset, last_offset = piece.first_offset, piece.valid_until
        start = max(first_offset, await self._index_floor(piece.segment, timestamp_ms))
        if start > last_offset:
            return None
        resolver = _OnePiece(piece)
        request = RecordsRequest(start, max(served[1].size_bytes, 1))
        pending = bytearray()
        async for data in self.reader.pool.read_records(request, resolver, None):
            pending += data
            found, used = await asyncio.to_thread(
                search_batches, bytes(pending), timestamp_ms, first_offset, last_offset
            )
            if found is not None:
                return found
            del pending[:used]
        return None

    async def _index_floor(self, segment: TieredSegment, timestamp_ms: int) -> int:
        data = bytearray()
        id_ = segment.segment_id.id
        async for piece in self.reader.open_index(id_, IndexType.TIMESTAMP):
            data += piece
        index = TimeIndex.parse(bytes(data), base_offset=segment.start_offset, source=str(id_))
        # The entry says "up to here nothing is younger"; the floor of the time before is safe.
        return index.lookup(timestamp_ms - 1)[1]


@dataclass(frozen=True, slots=True)
class _OnePiece:
    """A resolver that knows this piece only."""

    piece: SegmentPiece

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The piece, unless it ends below."""
        return self.piece if offset <= self.piece.valid_until else None


def search_batches(
    data: bytes, timestamp_ms: int, first_offset: int, last_offset: int
) -> tuple[FoundRecord | None, int]:
    """(the record, or None; bytes of whole batches looked at)."""
    at = 0
    while at + LOG_OVERHEAD <= len(data):
        size = LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
        if at + size > len(data):
            break
        header = parse_header(data, at, source=SOURCE, position=at)
        if header.max_timestamp >= timestamp_ms and not header.is_control:
            for record in iter_records(data, at, source=SOURCE, position=at):
                inside = first_offset <= record.offset <= last_offset
                if inside and record.timestamp_ms >= timestamp_ms:
                    epoch = header.partition_leader_epoch
                    return FoundRecord(record.offset, record.timestamp_ms, epoch), at
        at += size
    return None, at
