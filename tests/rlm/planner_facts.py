"""Small facts for planner tests: partitions, states, segments with few words."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Claim, LostOffsets, Mode, PartitionState
from rlmm.segment import (
    Incarnation,
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)

PARTITION = TopicIdPartition("orders", Uuid(bytes(15) + b"\x07"), 0)
DIRECTORY = Uuid(bytes(15) + b"\x11")
ME = Incarnation(1, DIRECTORY, 3)
NOW_MS = 1_700_000_000_000


def epochs(*entries: tuple[int, int]) -> Epochs:
    return tuple(EpochEntry(epoch, start) for epoch, start in entries)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def claim(token: int = 100, leader_epoch: int = 0, incarnation: Incarnation = ME) -> Claim:
    return Claim(token, leader_epoch, incarnation, 1, NOW_MS)


ONE_EPOCH = epochs((0, 0))


def state(
    *,
    lineage: Epochs = ONE_EPOCH,
    log_start: int = 0,
    highest: tuple[int, int] | None = None,
    next_offset: int | None = None,
    lost: tuple[LostOffsets, ...] = (),
    standing: Claim | None = None,
    mode: Mode = Mode.SIDECAR,
    delete_state: PartitionDeleteState | None = None,
    voided: Claim | None = None,
) -> PartitionState:
    if next_offset is None:
        next_offset = max(highest[0] + 1 if highest else 0, log_start)
    return PartitionState(
        partition=PARTITION,
        mode=mode,
        claim=standing,
        lineage=lineage,
        log_start_offset=log_start,
        highest_copied=highest,
        next_offset=next_offset,
        lost_ranges=lost,
        delete_state=delete_state,
        segment_count=0,
        size_bytes=0,
        voided_claim=voided,
    )


@dataclass(frozen=True, slots=True)
class LogSegment:
    base_offset: int
    next_base_offset: int | None
    size_bytes: int = 1_000
    sealed_at_ms: int | None = None
    first_known_offset: int = -1


def log(*bases: int) -> tuple[LogSegment, ...]:
    """Segments with these base offsets; the last one is active."""
    nexts: tuple[int | None, ...] = (*bases[1:], None)
    return tuple(LogSegment(base, next_) for base, next_ in zip(bases, nexts, strict=True))


def segment_row(
    number: int,
    start: int,
    end: int,
    *,
    leader_epochs: tuple[tuple[int, int], ...] | None = None,
    segment_state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED,
    max_timestamp_ms: int = NOW_MS,
    custom_metadata: bytes | None = None,
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid(number)),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=NOW_MS,
        leader_epochs=leader_epochs or ((0, start),),
        size_bytes=1_000,
        custom_metadata=custom_metadata,
        state=segment_state,
    )
