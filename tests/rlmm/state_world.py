"""A metadata state in memory, and short ways to put records into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.apply import Applied, apply
from rlmm.apply.outcome import Outcome, Verdict
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import (
    ClaimReset,
    LogStart,
    LostRange,
    PartitionClaim,
    PartitionModeChange,
    TimePassed,
)
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows import queries
from rlmm.rows.reads import read_measured_time
from rlmm.rows.rows import MemoryRows
from rlmm.segment import (
    Incarnation,
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

START_MS = 1_700_000_000_000
ORDERS = TopicIdPartition("orders", Uuid(bytes.fromhex("112233445566778899aabbccddeeff00")), 3)
PAYMENTS = TopicIdPartition("payments", Uuid(b"payments-topicid"), 0)
NODE_1 = Incarnation(1, Uuid(b"directory-of-n-1"), 1)
NODE_2 = Incarnation(2, Uuid(b"directory-of-n-2"), 1)


def epochs(*entries: tuple[int, int]) -> Epochs:
    return tuple(EpochEntry(*entry) for entry in entries)


def segment_uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


class World:
    """Rows in memory; every record is judged and carried out at once."""

    def __init__(self, partition: TopicIdPartition = ORDERS) -> None:
        self.rows = MemoryRows()
        self.partition = partition
        self.offset = -1
        self.time_ms = START_MS
        self.records: list[CommittedRecord] = []
        self.token = -1
        self.node = NODE_1
        self.claims = 0

    def commit(self, control_type: int | None, value: bytes) -> Applied:
        self.offset += 1
        record = CommittedRecord(self.offset, 1, self.time_ms, control_type, value)
        self.records.append(record)
        applied = apply(self.rows, record)
        self.rows.write(applied.writes)
        return applied

    def put(self, record: MetadataRecord) -> Outcome:
        proposal = encode(record)
        return self.commit(proposal.control_type, proposal.value).outcome

    def verdict(self, record: MetadataRecord) -> Verdict:
        return self.put(record).verdict

    @property
    def state(self) -> PartitionState:
        state = queries.partition_state(self.rows, self.partition)
        assert state is not None
        return state

    # ---- records

    def a_claim(
        self,
        checkpoint: Sequence[tuple[int, int]],
        *,
        node: Incarnation = NODE_1,
        number: int | None = None,
        mode: Mode = Mode.SIDECAR,
        epoch: int | None = None,
    ) -> PartitionClaim:
        if number is None:
            self.claims += 1
            number = self.claims
        last = checkpoint[-1][0] if checkpoint else 0
        return PartitionClaim(
            self.partition,
            mode,
            last if epoch is None else epoch,
            node,
            number,
            epochs(*checkpoint),
        )

    def an_add(
        self,
        number: int,
        start: int,
        end: int,
        leader_epochs: Sequence[tuple[int, int]],
        *,
        size_bytes: int = 1000,
    ) -> RemoteLogSegmentMetadata:
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.partition, segment_uuid(number)),
            start_offset=start,
            end_offset=end,
            broker_id=self.node.node_id,
            max_timestamp_ms=START_MS,
            event_timestamp_ms=START_MS,
            leader_epochs=tuple(leader_epochs),
            size_bytes=size_bytes,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            token=self.token,
            writer=self.node,
            upload_deadline_ms=START_MS + 60_000,
        )

    def an_update(
        self,
        number: int,
        state: SegmentState,
        *,
        expected: SegmentState | None = None,
        custom_metadata: bytes | None = None,
    ) -> RemoteLogSegmentMetadataUpdate:
        return RemoteLogSegmentMetadataUpdate(
            segment_id=RemoteLogSegmentId(self.partition, segment_uuid(number)),
            broker_id=self.node.node_id,
            event_timestamp_ms=START_MS,
            custom_metadata=custom_metadata,
            state=state,
            token=self.token,
            writer=self.node,
            expected_state=expected,
        )

    def a_finish(self, number: int) -> RemoteLogSegmentMetadataUpdate:
        return self.an_update(
            number, SegmentState.COPY_SEGMENT_FINISHED, custom_metadata=b"checksums"
        )

    def a_delete(
        self, number: int, expected: SegmentState = SegmentState.COPY_SEGMENT_FINISHED
    ) -> RemoteLogSegmentMetadataUpdate:
        return self.an_update(number, SegmentState.DELETE_SEGMENT_STARTED, expected=expected)

    def a_delete_finish(self, number: int) -> RemoteLogSegmentMetadataUpdate:
        return self.an_update(number, SegmentState.DELETE_SEGMENT_FINISHED)

    def a_log_start(self, offset: int, epoch: int) -> LogStart:
        return LogStart(self.partition, self.token, epoch, offset)

    def a_lost_range(self, start: int, end: int, why: str = "gone") -> LostRange:
        return LostRange(self.partition, self.token, start, end, why)

    def a_step(
        self, state: PartitionDeleteState, *, grace_ms: int = 0, seen_ms: int = -1
    ) -> RemotePartitionDeleteMetadata:
        """As somebody who has just read the state would propose it."""
        known = queries.partition_state(self.rows, self.partition)
        return RemotePartitionDeleteMetadata(
            self.partition,
            1,
            START_MS,
            state,
            replaces_offset=-1 if known is None else known.delete_offset,
            grace_ms=grace_ms if state is PartitionDeleteState.DELETE_PARTITION_MARKED else -1,
            seen_ms=seen_ms if state is PartitionDeleteState.DELETE_PARTITION_STARTED else -1,
        )

    def time_passes(self, ms: int) -> None:
        """Nodes measure it, and say so."""
        while ms > 0:
            step_ms = min(ms, TIME_STEP_MS_MAX)
            self.accept(TimePassed(read_measured_time(self.rows).offset, step_ms))
            ms -= step_ms

    # ---- accepted at once

    def accept(self, *records: MetadataRecord) -> None:
        for record in records:
            outcome = self.put(record)
            assert outcome.verdict is Verdict.ACCEPTED, (record, outcome)

    def claim(
        self,
        *checkpoint: tuple[int, int],
        node: Incarnation = NODE_1,
        mode: Mode = Mode.SIDECAR,
    ) -> None:
        self.accept(self.a_claim(checkpoint, node=node, mode=mode))
        self.token, self.node = self.offset, node

    def leads(self, *checkpoint: tuple[int, int], mode: Mode = Mode.SIDECAR) -> None:
        """Claimed for the first time, with the checkpoint's begin as log start."""
        self.claim(*checkpoint, mode=mode)
        self.accept(self.a_log_start(checkpoint[0][1], checkpoint[0][0]))

    def copy(
        self, number: int, start: int, end: int, leader_epochs: Sequence[tuple[int, int]]
    ) -> None:
        self.accept(self.an_add(number, start, end, leader_epochs), self.a_finish(number))

    def delete(self, *states: PartitionDeleteState) -> None:
        """The steps of a partition's deletion, without a grace."""
        for state in states:
            self.accept(self.a_step(state))

    def log_start(self, offset: int, epoch: int) -> None:
        self.accept(self.a_log_start(offset, epoch))

    def mode(self, mode: Mode) -> None:
        self.accept(PartitionModeChange(self.partition, mode, self.state.mode_offset))

    def reset_claim(self, cut_at: int | None = None) -> None:
        claim = self.state.claim or self.state.voided_claim
        assert claim is not None
        self.accept(ClaimReset(self.partition, claim.token, cut_at))

    def serving(self, epoch: int, offset: int) -> int | None:
        """The number of the segment that serves an offset."""
        answer = queries.segment_for_offset(self.rows, self.partition, epoch, offset)
        return None if answer is None else int.from_bytes(answer.metadata.segment_id.id, "big")

    def lost(self) -> list[tuple[int, int]]:
        return [(each.start, each.end) for each in self.state.lost_ranges]

    def listed(self, epoch: int | None = None) -> list[int]:
        found = queries.list_segments(self.rows, self.partition, epoch)
        return [int.from_bytes(each.segment_id.id, "big") for each in found]

    def changed_by(self, record: MetadataRecord) -> bool:
        """Whether a record changes more than record time."""
        before = self.rows.items()
        self.put(record)
        time_key = bytes((2,))
        return [row for row in before if row[0] != time_key] != [
            row for row in self.rows.items() if row[0] != time_key
        ]


def by(record: RemoteLogSegmentMetadataUpdate, node: Incarnation) -> RemoteLogSegmentMetadataUpdate:
    return replace(record, writer=node)
