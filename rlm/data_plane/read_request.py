"""The requests of readers to the tier and their results, as plain values that cross processes."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from kafka_formats.errors import NotFound
from rlm.data_plane.further_requests import FurtherRequests
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import IndexType
from rlmm.segment import RemoteLogSegmentId


class WaitingRead(Protocol):
    """A read whose first bytes are verified; errors of its start were raised before this."""

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        """Send all bytes to the caller's `client`, to which the caller must not write meanwhile.
        Raises the errors of a read, and RetryLater if the worker died.
        """


@dataclass(frozen=True, slots=True)
class SendRules:
    """The limits of sending. `grace_s` and `bytes_per_s_min`: see `SendPace`; `grace_s` also limits
    each chunk. `store_deadline_s` limits the wait for the store's next chunk.
    """

    grace_s: float
    bytes_per_s_min: int
    store_deadline_s: float


class ClientEnd(StrEnum):
    """The reason why sending ended: all bytes sent, client disconnected, or client too slow."""

    TOOK_ALL = "took_all"
    GONE = "gone"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of sending. The kernel accepted `sent_bytes` of the body. `further_answers` to the
    client's next requests were sent after it, with `further_bytes` of batches.
    """

    end: ClientEnd
    sent_bytes: int
    further_answers: int = 0
    further_bytes: int = 0


class Isolation(StrEnum):
    """Kafka's isolation levels."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class RecordFormat(StrEnum):
    """The format of records: batches exactly as stored, or a line with a JSON object per record."""

    BATCHES = "batches"
    JSON_LINES = "json_lines"


@dataclass(frozen=True, slots=True)
class TieredSegment:
    """A finished segment that Strandline copied, and the place of its objects. `end_offset` is
    inclusive.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    prefix: str
    custom_metadata: CustomMetadata


class StorePlace(NamedTuple):
    """The name of a store, and the prefix of its keys."""

    store: str
    prefix: str


@dataclass(frozen=True, slots=True)
class AivenSegment:
    """A finished segment that Aiven's plug-in wrote, whose objects are in one of `places`. The
    metadata has no checksum of them. `end_offset` is inclusive.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    log_bytes: int
    txn_index_empty: bool
    places: tuple[StorePlace, ...]


ReadableSegment = TieredSegment | AivenSegment


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """The part of a segment that may be served: from `first_offset`, the offset asked for or the
    first served one above it, to `valid_until` (inclusive).
    """

    segment: ReadableSegment
    first_offset: int
    valid_until: int


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A request for the bytes [start, end) of a segment's `.log`; with `end` None or above the
    size, to its end. Near the end `following` is the next segment, if there is one.
    """

    segment: ReadableSegment
    start: int = 0
    end: int | None = None
    following: ReadableSegment | None = None


class NoSuchIndex(NotFound):
    """The segment has no index of this type, by its verified manifest."""

    reason = "NO_SUCH_INDEX"


@dataclass(frozen=True, slots=True)
class IndexRequest:
    segment: ReadableSegment
    index: IndexType


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """A request for records from `offset` on. `max_bytes` limits the stored bytes that are read,
    but at least one batch is returned.

    In the format BATCHES the first batch contains `offset` and is whole, so it may begin below it.
    """

    offset: int
    max_bytes: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    format: RecordFormat = RecordFormat.BATCHES


@dataclass(frozen=True, slots=True)
class BatchesRequest:
    """A request for whole batches of one piece, for a Fetch answer: from the batch that contains
    `offset`, below `until` (exclusive), at most `bytes_max` but at least one batch. Near the end
    `following` is the next segment, if there is one.
    """

    piece: SegmentPiece
    offset: int
    until: int
    bytes_max: int
    isolation: Isolation
    following: ReadableSegment | None = None

    @property
    def segment(self) -> ReadableSegment:
        return self.piece.segment


@dataclass(frozen=True, slots=True)
class BatchesFound:
    """The result of a BatchesRequest. `size_bytes` is 0 only if the piece has no batch from the
    offset on. `next_offset` is the offset of the next request.

    For READ_COMMITTED, `aborted` lists (producer id, first offset) as Kafka's Fetch answers do, and
    is complete below `decided_until` (exclusive). Transactions from there on are open at
    `tier_end`, the end of the tier.
    """

    size_bytes: int
    next_offset: int
    aborted: tuple[tuple[int, int], ...]
    decided_until: int
    tier_end: int

    @property
    def is_all(self) -> bool:
        """True if the answer needs only these batches: there are some, none of an aborted
        transaction, and all their transactions are decided.
        """
        return self.size_bytes > 0 and not self.aborted and self.decided_until >= self.next_offset


class HeldBatches(Protocol):
    """Found batches, kept in memory until they are sent or read."""

    @property
    def found(self) -> BatchesFound: ...

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        """Send the batches as `WaitingRead.send_to` does; with `further`, then answer the client's
        next requests as well.
        """

    async def read(self) -> bytes:
        """The bytes of the batches. Raises RetryLater if the worker died."""


@dataclass(frozen=True, slots=True)
class RecordsEnd:
    """The end of a read of records.

    `next_offset` is the offset of the next read. `at_end`: the tier has no more readable records
    now; otherwise `max_bytes` was reached. `lost` are the ranges (inclusive) that the read skipped
    because no segment serves them. `undecided_records` were dropped from committed ones because the
    outcome of their transaction is lost.
    """

    next_offset: int
    batches: int
    stored_bytes: int
    at_end: bool
    lost: tuple[tuple[int, int], ...] = ()
    undecided_records: int = 0


class SegmentResolver(Protocol):
    """Looks up the segments of one partition in the metadata for a read; the view may change during
    the read. Callers make one call at a time.
    """

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The piece that serves `offset`, or else the next piece above it; None if there is
        none.
        """
