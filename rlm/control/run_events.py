"""Events of the remote log manager: for the terminal, the audit, metrics.

Handlers are called on the event loop and must return at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentId


@dataclass(frozen=True, slots=True)
class PartitionClaimed:
    """The claim was accepted; `token` is its metadata offset."""

    partition: TopicIdPartition
    leader_epoch: int
    token: int


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """This node no longer works for the partition; copies under way were cancelled."""

    partition: TopicIdPartition
    why: str


@dataclass(frozen=True, slots=True)
class LogStartRecorded:
    """The tier's log start offset was set for the first time."""

    partition: TopicIdPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LostRangeRecorded:
    """Offsets [start, end] (inclusive) left the local log before they were copied: an alert."""

    partition: TopicIdPartition
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class SegmentStarted:
    """COPY_SEGMENT_STARTED is applied and the upload begins. `end_offset` is inclusive."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentProgress:
    """Bytes of the segment that the store has so far."""

    segment_id: RemoteLogSegmentId
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class SegmentCopied:
    """COPY_SEGMENT_FINISHED is applied: the segment is readable from the tier."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    size_bytes: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class SegmentFailed:
    """A failed attempt. `segment_id` is None if it failed before COPY_SEGMENT_STARTED, so that
    nothing is left over.
    """

    partition: TopicIdPartition
    segment_id: RemoteLogSegmentId | None
    start_offset: int
    kind: str
    error: str


@dataclass(frozen=True, slots=True)
class SegmentDeleted:
    """DELETE_SEGMENT_FINISHED is applied after a clean-up; `why` says what was cleaned up."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    why: str


@dataclass(frozen=True, slots=True)
class HoldReleased:
    """A segment [start, end] (inclusive) is held no longer. `missed`: never copied, and gone."""

    partition: TopicIdPartition
    start: int
    end: int
    size_bytes: int
    why: str
    missed: bool


@dataclass(frozen=True, slots=True)
class SegmentRepaired:
    """A damaged segment [start, end] (inclusive) was copied from `source`, and read back."""

    segment_id: RemoteLogSegmentId
    new_segment: Uuid
    start_offset: int
    end_offset: int
    source: str


CopyEvent = (
    PartitionClaimed
    | ClaimLost
    | LogStartRecorded
    | LostRangeRecorded
    | SegmentStarted
    | SegmentProgress
    | SegmentCopied
    | SegmentFailed
    | SegmentDeleted
    | HoldReleased
    | SegmentRepaired
)
OnEvent = Callable[[CopyEvent], None]


def ignore_event(event: CopyEvent) -> None:
    """The handler of callers that do not listen."""
