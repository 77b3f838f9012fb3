"""Requests of readers to the tier. Plain values, which cross processes."""

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
    """A read whose first bytes are verified; errors at its start were raised before."""

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        """Send all to the caller's `client`, to which nobody else may write meanwhile. Raises the
        errors of a read; RetryLater also if the worker died.
        """


@dataclass(frozen=True, slots=True)
class SendRules:
    """`grace_s` and `bytes_per_s_min` as of `SendPace`, `grace_s` also for each chunk alone;
    `store_deadline_s` bounds the store's answer for the next chunk.
    """

    grace_s: float
    bytes_per_s_min: int
    store_deadline_s: float


class ClientEnd(StrEnum):
    """The reason why sending ended."""

    TOOK_ALL = "took_all"
    GONE = "gone"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Sent:
    """The end of sending; the kernel took `sent_bytes` of the body. `further_bytes` of batches went
    in `further_answers` behind it.
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
    """Batches exactly as stored, or one JSON object a line a record."""

    BATCHES = "batches"
    JSON_LINES = "json_lines"


@dataclass(frozen=True, slots=True)
class TieredSegment:
    """A finished segment of ours and where its objects are. `end_offset` is inclusive."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    prefix: str
    custom_metadata: CustomMetadata


class StorePlace(NamedTuple):
    """A store by its name, and the prefix of its keys."""

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
    """Bytes [start, end) of a segment's `.log`; `end` None or past the size: to its end. Near the
    end `following` is the segment behind this one, if any.
    """

    segment: ReadableSegment
    start: int = 0
    end: int | None = None
    following: ReadableSegment | None = None


class NoSuchIndex(NotFound):
    """A segment's verified manifest names no such index."""

    reason = "NO_SUCH_INDEX"


@dataclass(frozen=True, slots=True)
class IndexRequest:
    segment: ReadableSegment
    index: IndexType


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Records from `offset` on. `max_bytes` bounds the stored bytes read; at least one batch is
    sent.

    In BATCHES the first batch holds `offset` and is whole, so it may begin lower.
    """

    offset: int
    max_bytes: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    format: RecordFormat = RecordFormat.BATCHES


@dataclass(frozen=True, slots=True)
class BatchesRequest:
    """Whole batches of one piece, for a Fetch answer: from the one that contains `offset` on, none
    at or above `until` (exclusive), at most `bytes_max` but at least one. Near the end `following`
    is the segment behind this one, if any.
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
    """The batches found, `size_bytes` of them; 0 only where the piece has none from the offset on.

    `next_offset` is where to go on. For READ_COMMITTED, `aborted` lists (producer id, first offset)
    as Kafka's Fetch answers do, complete below `decided_until` (exclusive). Transactions from there
    on are open at `tier_end`, where the tier ends.
    """

    size_bytes: int
    next_offset: int
    aborted: tuple[tuple[int, int], ...]
    decided_until: int
    tier_end: int

    @property
    def is_all(self) -> bool:
        """True if an answer has nothing but these batches: there are some, and of transactions
        nothing is to be listed or asked.
        """
        return self.size_bytes > 0 and not self.aborted and self.decided_until >= self.next_offset


class HeldBatches(Protocol):
    """Found batches, held until they are sent one way or the other."""

    @property
    def found(self) -> BatchesFound: ...

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        """Send the batches as `WaitingRead.send_to` does; then the client's further requests may be
        answered, too.
        """

    async def read(self) -> bytes:
        """The bytes; RetryLater if the worker died."""


@dataclass(frozen=True, slots=True)
class RecordsEnd:
    """The end of a read of records.

    `next_offset` is where to go on. `at_end`: nothing readable follows in the tier now; otherwise
    `max_bytes` was reached. `lost` are the offsets (inclusive) that the read passed because nothing
    serves them; `undecided_records` were left out of committed ones because the outcome of their
    transaction is lost.
    """

    next_offset: int
    batches: int
    stored_bytes: int
    at_end: bool
    lost: tuple[tuple[int, int], ...] = ()
    undecided_records: int = 0


class SegmentResolver(Protocol):
    """Answers a read's questions to the metadata, all about one partition. The view may move on
    while the read goes on.
    """

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The piece that serves `offset`, or else the next one above; None if none is left."""
