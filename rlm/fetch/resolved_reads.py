"""Reads from the tier: bytes of a segment, an index, records across segments.

The view names the segment that serves an offset, its custom metadata the store, and a worker does
the work. No byte outside the merged lineage, and none that fails its checksum, reaches a reader
(no_bad_byte).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.pool_port import PoolPort
from rlm.data_plane.ranges_in_order import READER_BYTES_MAX
from rlm.data_plane.read_request import (
    AivenSegment,
    BatchesRequest,
    HeldBatches,
    IndexRequest,
    LogRequest,
    ReadableSegment,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
    SegmentResolver,
    StorePlace,
    TieredSegment,
    WaitingRead,
)
from rlm.fetch.damage_seen import DamageSeen
from rlm.format.aiven_metadata import AivenMetadata, metadata_of
from rlm.format.manifest import IndexType
from rlm.stores.tier_store import TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import PartitionState
from rlmm.rows.queries import ServedSegment
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True)
class ResolvedReads:
    """The entry points of reads. An iterator raises errors at its first step."""

    metadata: RemoteLogMetadataManager
    pool: PoolPort
    stores: TierStores
    seen: DamageSeen = field(default_factory=DamageSeen)

    async def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Verified bytes [start, end) of a finished segment's `.log`."""
        with self._telling():
            async for piece in self.pool.read_log(self._log_request(segment_uuid, start, end)):
                yield piece

    def waiting_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None
    ) -> AbstractAsyncContextManager[WaitingRead]:
        """Verified bytes [start, end) of a `.log`, for sending to a client's own connection; errors
        are raised at once.
        """
        return self._waiting(self._log_request(segment_uuid, start, end))

    @asynccontextmanager
    async def _waiting(self, request: LogRequest) -> AsyncIterator[WaitingRead]:
        with self._telling():
            async with self.pool.waiting_log(request) as waiting:
                yield waiting

    @asynccontextmanager
    async def waiting_batches(
        self, partition: TopicIdPartition, request: BatchesRequest
    ) -> AsyncIterator[HeldBatches]:
        """The batches of one piece, kept ready by a worker; errors are raised at once."""
        with self._telling():
            async with self.pool.waiting_batches(request, ViewResolver(self, partition)) as held:
                yield held

    async def open_index(self, segment_uuid: Uuid, index: IndexType) -> AsyncIterator[bytes]:
        """Verified bytes of one index of a finished segment."""
        segment = self._finished(segment_uuid)
        with self._telling():
            async for piece in self.pool.read_index(IndexRequest(segment, index)):
                yield piece

    async def records(
        self,
        partition: TopicIdPartition,
        request: RecordsRequest,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Records from an offset on; `check_readable` raises for offsets that can't be read."""
        state = self.state_of(partition)
        if request.max_bytes <= 0:
            raise InvalidRequest("must be above 0", field="max_bytes")
        check_readable(state, request.offset)
        pieces = self.of_pieces(request, ViewResolver(self, partition), on_end)
        async with aclosing(pieces):  # a reader that leaves ends the worker's read at once
            async for piece in pieces:
                yield piece

    async def of_pieces(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The records of the pieces that `resolver` names."""
        with self._telling():
            async for piece in self.pool.read_records(request, resolver, on_end):
                yield piece

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Note damage for a repair, and raise it to the reader."""
        try:
            yield
        except CorruptData as error:
            self.seen.note(error, self.stores)
            raise

    def state_of(self, partition: TopicIdPartition) -> PartitionState:
        """The partition in the view; NotFound if no record names it."""
        state = self.metadata.partition_state(partition)
        if state is None:
            raise NotFound(f"{partition} is not in the metadata log: nothing of it was tiered")
        return state

    def served_from(self, partition: TopicIdPartition, offset: int) -> ServedSegment | None:
        """The segment that serves `offset` now, or the next readable one; None if there is none."""
        state = self.state_of(partition)
        offset = max(offset, state.first_readable_offset)
        return next(self.metadata.served_segments(state, offset, OFFSET_MAX), None)

    def piece(self, served: ServedSegment) -> SegmentPiece:
        offsets, row = served
        return SegmentPiece(self.tiered(row), offsets.first_offset, offsets.last_offset)

    def tiered(self, row: RemoteLogSegmentMetadata) -> ReadableSegment:
        """The location of a finished segment's objects. CorruptData: its custom metadata is
        damaged. Refused: it was written by an unknown RemoteStorageManager, or names a store that
        this node does not have.
        """
        custom = metadata_of(row)
        if isinstance(custom, AivenMetadata):
            return self._aivens(row, custom)
        prefix = self.stores.named(custom.store).prefix
        return TieredSegment(row.segment_id, row.start_offset, row.end_offset, prefix, custom)

    def _aivens(self, row: RemoteLogSegmentMetadata, custom: AivenMetadata) -> AivenSegment:
        tiers = self.stores.with_prefix(row.segment_id, custom.object_prefix)
        return AivenSegment(
            row.segment_id,
            row.start_offset,
            row.end_offset,
            row.size_bytes,
            row.txn_index_empty,
            tuple(StorePlace(tier.name, tier.prefix) for tier in tiers),
        )

    def _log_request(self, segment_uuid: Uuid, start: int, end: int | None) -> LogRequest:
        row = self._finished_row(segment_uuid)
        if start < 0:
            raise InvalidRequest("must be 0 or more", field="start")
        if end is not None and end < start:
            raise InvalidRequest("must not be below start", field="end")
        near_end = end is not None and row.size_bytes - end < READER_BYTES_MAX
        following = self.following(row) if near_end and start > 0 else None
        return LogRequest(self.tiered(row), start, end, following)

    def following(self, row: RemoteLogSegmentMetadata) -> ReadableSegment | None:
        """The segment after this one; None also if it can't be located: its read reports why."""
        with suppress(StrandlineError):
            served = self.served_from(row.segment_id.partition, row.end_offset + 1)
            return None if served is None else self.tiered(served[1])
        return None

    def _finished(self, segment_uuid: Uuid) -> ReadableSegment:
        return self.tiered(self._finished_row(segment_uuid))

    def _finished_row(self, segment_uuid: Uuid) -> RemoteLogSegmentMetadata:
        row = self.metadata.find_segment(segment_uuid)
        if row is None:
            raise NotFound(f"no segment has the id {segment_uuid}")
        if row.state is not SegmentState.COPY_SEGMENT_FINISHED:
            raise NotFound(
                f"segment {segment_uuid} is in state {row.state.name}; only "
                "COPY_SEGMENT_FINISHED segments can be read"
            )
        return row


def check_readable(state: PartitionState, offset: int) -> None:
    """Raise InvalidRequest below 0 and below the first readable offset; NotFound for offsets that
    are not in the tier.
    """
    if offset < 0:
        raise InvalidRequest("must be 0 or more", field="offset")
    if state.highest_copied is None:
        raise NotFound(f"nothing of {state.partition} is tiered yet")
    if offset < state.log_start_offset:
        raise InvalidRequest(
            f"{offset} is below the log start offset {state.log_start_offset}: those records were "
            "deleted (OFFSET_OUT_OF_RANGE)",
            field="offset",
        )
    if offset < state.first_readable_offset:
        raise InvalidRequest(
            f"{offset} is below the first readable offset {state.first_readable_offset}: those "
            "records are in the trash (OFFSET_OUT_OF_RANGE)",
            field="offset",
        )
    highest = state.highest_copied[0]
    if offset > highest:
        raise NotFound(
            f"offset {offset} is not tiered yet: the highest copied offset is {highest}; read it "
            "from the broker"
        )
    for lost in state.lost_ranges:
        if lost.start <= offset <= lost.end:
            raise NotFound(
                f"offset {offset} lies in the lost range {lost.start} to {lost.end} ({lost.why}); "
                f"go on at {lost.end + 1}"
            )


@dataclass(frozen=True, slots=True)
class ViewResolver:
    """Answers a worker's requests from the present view, by one look-up each."""

    reader: ResolvedReads
    partition: TopicIdPartition

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        served = self.reader.served_from(self.partition, offset)
        return None if served is None else self.reader.piece(served)
