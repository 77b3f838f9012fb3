"""What a reader asks of the tier. Plain values: they cross a process border."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import IndexType
from rlmm.segment import RemoteLogSegmentId


class HeldRead(Protocol):
    """What is wrong from the start was raised before; the first bytes are verified."""

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        """Send all to `client`, to which nobody else writes meanwhile; it remains the caller's.

        Raises what ends a read; RetryLater also when the worker died.
        """
        ...


@dataclass(frozen=True, slots=True)
class SendRules:
    """`grace_s` and `bytes_per_s_min` as of `SendPace`, `grace_s` also for each chunk alone;
    `store_deadline_s` is how long the store may take for the next one.
    """

    grace_s: float
    bytes_per_s_min: int
    store_deadline_s: float


class ClientEnd(StrEnum):
    """Why no more is sent."""

    TOOK_ALL = "took_all"
    GONE = "gone"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Sent:
    """How a body went; `sent_bytes` is what the kernel took of it."""

    end: ClientEnd
    sent_bytes: int


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
    """A finished segment and where its objects are. `end_offset` is inclusive."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    prefix: str
    custom_metadata: CustomMetadata


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """The part of a segment that may be served: nothing below `first_offset`, which is the one
    asked for or the first one above that is served, and nothing above `valid_until` (inclusive).
    """

    segment: TieredSegment
    first_offset: int
    valid_until: int


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Bytes [start, end) of a segment's `.log`; `end` None or past the size means to its end."""

    segment: TieredSegment
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """One whole index of a segment."""

    segment: TieredSegment
    index: IndexType


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Records from `offset` on. `max_bytes` bounds the stored bytes read; at least one batch goes.

    In BATCHES the first batch is the one that holds `offset`, whole, so that it may begin lower.
    """

    offset: int
    max_bytes: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    format: RecordFormat = RecordFormat.BATCHES


@dataclass(frozen=True, slots=True)
class RecordsEnd:
    """How a read of records ended.

    `next_offset` is where to go on. `at_end`: nothing readable is in the tier from there on (now);
    otherwise `max_bytes` was reached. `lost` are the offsets (inclusive) that the read went over
    since nothing serves them; `undecided_records` were left out of committed ones since the outcome
    of their transaction was among such offsets.
    """

    next_offset: int
    batches: int
    stored_bytes: int
    at_end: bool
    lost: tuple[tuple[int, int], ...] = ()
    undecided_records: int = 0


class SegmentResolver(Protocol):
    """What a read of records asks of the metadata, step by step; all answers are of one partition.

    May be answered from a view that moves on while the read goes on.
    """

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The piece that serves `offset`, or else the next one above it; None when none is left."""
        ...
