"""Partitions as their brokers have them, and records that nodes would propose about them.

Coarse on purpose: a lineage that grows by elections, a log that grows and loses its head, and its
segments. Metadata that is read for a record may be old.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, entries_in_range
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Mode, PartitionState, TopicPolicy
from rlmm.records.control_records import (
    ClaimReset,
    LogStart,
    LostRange,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    TopicPolicyChange,
)
from rlmm.records.records import MetadataRecord
from rlmm.segment import (
    Incarnation,
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

SEGMENT_OFFSETS = 10


@dataclass
class Partition:
    """A partition; `leader` is a node id, `checkpoint` that of its broker."""

    tip: TopicIdPartition
    leader: int = 1
    checkpoint: list[EpochEntry] = field(default_factory=lambda: [EpochEntry(0, 0)])
    local_start: int = 0
    end: int = 0

    def grow(self, random: Random) -> None:
        self.end += random.randrange(1, 2 * SEGMENT_OFFSETS)
        if random.randrange(10) == 0:
            self.local_start = random.randint(self.local_start, self.end)

    def elect(self, random: Random, node_ids: list[int]) -> None:
        """Elect a leader, sometimes uncleanly, without the end of the log."""
        self.leader = random.choice(node_ids)
        epoch = self.checkpoint[-1].epoch + random.randrange(1, 3)
        if random.randrange(4) == 0:
            self.end = max(self.local_start, self.end - random.randrange(SEGMENT_OFFSETS))
        self.checkpoint = [each for each in self.checkpoint if each.start_offset < self.end]
        self.checkpoint.append(EpochEntry(epoch, self.end))

    # ---- records

    def a_claim(self, incarnation: Incarnation, number: int, mode: Mode) -> PartitionClaim:
        epochs = tuple(self.checkpoint)
        return PartitionClaim(
            self.tip, mode, epochs[-1].epoch, incarnation, number, epochs, self.local_start
        )

    def an_add(
        self, writer: Incarnation, token: int, number: int, state: PartitionState, random: Random
    ) -> RemoteLogSegmentMetadata | None:
        start = (
            max(state.next_offset, 0) + random.choice((0, 0, 0, 0, 2)) - random.choice((0, 0, 3))
        )
        start = max(start, 0)
        end = min(start + random.randrange(SEGMENT_OFFSETS), self.end - 1)
        epochs = entries_in_range(tuple(self.checkpoint), start, end + 1)
        if end < start or not epochs:
            return None
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.tip, Uuid(number.to_bytes(16, "big"))),
            start_offset=start,
            end_offset=end,
            broker_id=writer.node_id,
            max_timestamp_ms=1,
            event_timestamp_ms=1,
            leader_epochs=epochs,
            size_bytes=100,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            token=token,
            writer=writer,
            upload_deadline_ms=2,
        )

    def a_log_start(self, token: int, state: PartitionState, random: Random) -> LogStart | None:
        offset = state.log_start_offset + random.choice((0, 4, 15))
        if state.log_start_offset < 0:
            offset = self.local_start
        holding = [each.epoch for each in state.lineage if each.start_offset <= offset]
        if not holding:
            return None
        return LogStart(self.tip, token, holding[-1], offset)

    def a_lost_range(self, token: int, state: PartitionState) -> LostRange | None:
        if self.local_start <= state.next_offset or state.next_offset < 0:
            return None
        return LostRange(self.tip, token, state.next_offset, self.local_start - 1, "retention")


def an_update(
    segment: RemoteLogSegmentMetadata, to: SegmentState, writer: Incarnation, token: int
) -> RemoteLogSegmentMetadataUpdate:
    """The next update by a node that believes `segment` to be its own."""
    finished = to is SegmentState.COPY_SEGMENT_FINISHED
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment.segment_id,
        broker_id=writer.node_id,
        event_timestamp_ms=1,
        custom_metadata=b"sums" if finished else None,
        state=to,
        token=token,
        writer=writer,
        expected_state=segment.state if to is SegmentState.DELETE_SEGMENT_STARTED else None,
    )


def an_admin_deed(state: PartitionState, random: Random) -> MetadataRecord | None:
    """A record that takes a partition out of service, or back."""
    tip = state.partition
    if state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED:
        if random.randrange(2):
            return PartitionDeleteUndo(tip, state.delete_offset)
        to = PartitionDeleteState.DELETE_PARTITION_STARTED
        return RemotePartitionDeleteMetadata(tip, 1, 1, to, replaces_offset=state.delete_offset)
    if state.delete_state is PartitionDeleteState.DELETE_PARTITION_STARTED:
        to = PartitionDeleteState.DELETE_PARTITION_FINISHED
        return RemotePartitionDeleteMetadata(tip, 1, 1, to)
    if state.mode is not Mode.SIDECAR:
        return PartitionModeChange(tip, Mode.SIDECAR, state.mode_offset)
    deed = random.randrange(8)
    if deed == 0:
        to = PartitionDeleteState.DELETE_PARTITION_MARKED
        return RemotePartitionDeleteMetadata(
            tip, 1, 1, to, replaces_offset=state.delete_offset, grace_ms=0
        )
    if deed < 3:
        return PartitionModeChange(
            tip, random.choice((Mode.PAUSED, Mode.DELEGATED)), state.mode_offset
        )
    claim = state.claim
    return ClaimReset(tip, claim.token, 0) if claim is not None and deed < 5 else None


def a_policy(topic: str, value: int, replaces: int) -> TopicPolicyChange:
    return TopicPolicyChange(topic, TopicPolicy(retention_ms=value), replaces)
