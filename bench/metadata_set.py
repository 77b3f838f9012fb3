"""A metadata set of any size: partitions whose segments are all COPY_SEGMENT_FINISHED.

The rows are those that apply would make of the records (`tests/scale/test_metadata_set.py` holds
one against the other); they are encoded directly, because applying two million records takes
minutes. `make_data_directory` writes them through the view, takes the log's snapshot of them, and
leaves a formatted data directory that an ordinary node starts from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.custom_metadata import CustomMetadata
from rlmm.data_directory.data_directory import (
    NewDirectory,
    format_data_directory,
    open_data_directory,
)
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import OsDisk
from rlmm.log.quorum_records import Voter
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import SnapshotId
from rlmm.partition_state import Claim, Mode, Totals
from rlmm.records.control_records import LogStart, PartitionClaim
from rlmm.records.records import MetadataRecord
from rlmm.records.segment_records import encode_segment_record
from rlmm.rows import keys, values
from rlmm.rows.coverage import cover, epoch_ranges
from rlmm.rows.partitions import PartitionRow, encode_partition
from rlmm.rows.rows import MemoryRows, OverlayRows, RowWrite
from rlmm.rows.snapshot_rows import to_proposals
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rlmm.view.view import View

NODE_ID = 1
KAFKA_CLUSTER_ID = "benchmark-cluster"
CLUSTER_ID = Uuid(b"bench-cluster-id")
DIRECTORY_ID = Uuid(b"bench-directory.")
FIRST_MS = 1_700_000_000_000
OFFSETS_PER_SEGMENT = 10_000
SEGMENT_BYTES = 1_000_000_000
PARTITIONS_PER_TOPIC = 100
FIRST_OFFSET = 3
"""The first offset of ours: below lie the log's own records, leader change, kraft version,
voters.
"""
CUSTOM_METADATA = CustomMetadata("main", SEGMENT_BYTES, 1, 2_000_000, 2, 3_000, 3).encode()


@dataclass(frozen=True, slots=True)
class MetadataSet:
    """`partitions` partitions with `segments_each` segments each, of three leader epochs."""

    partitions: int
    segments_each: int

    @property
    def segments(self) -> int:
        return self.partitions * self.segments_each

    @property
    def end_offset(self) -> int:
        """The metadata offset behind the last record."""
        return self.claim_offset(self.partitions)

    @property
    def lineage(self) -> Epochs:
        """Borders lie inside segments, as they do in life."""
        end = self.segments_each * OFFSETS_PER_SEGMENT
        return (EpochEntry(0, 0), EpochEntry(3, end // 3 + 17), EpochEntry(7, 2 * end // 3 + 17))

    def partition(self, number: int) -> TopicIdPartition:
        topic = f"benchmark-{number // PARTITIONS_PER_TOPIC:05d}"
        topic_id = Uuid(blake2b(topic.encode(), digest_size=16).digest())
        return TopicIdPartition(topic, topic_id, number % PARTITIONS_PER_TOPIC)

    def claim_offset(self, number: int) -> int:
        """Claim, log start, then two records a segment, partition by partition."""
        return FIRST_OFFSET + number * (2 + 2 * self.segments_each)

    def started(self, number: int, index: int) -> RemoteLogSegmentMetadata:
        """Segment `index` of a partition, as it is added."""
        start = index * OFFSETS_PER_SEGMENT
        end = start + OFFSETS_PER_SEGMENT - 1
        id_ = blake2b(b"%d %d" % (number, index), digest_size=16).digest()
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.partition(number), Uuid(id_)),
            start_offset=start,
            end_offset=end,
            broker_id=NODE_ID,
            max_timestamp_ms=FIRST_MS + index,
            event_timestamp_ms=FIRST_MS + index,
            leader_epochs=self._epochs_within(start, end),
            size_bytes=SEGMENT_BYTES,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            token=self.claim_offset(number),
            writer=INCARNATION,
            upload_deadline_ms=FIRST_MS + 3_600_000,
        )

    def _epochs_within(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        lineage = self.lineage
        before = [entry for entry in lineage if entry.start_offset <= start][-1]
        inside = [entry for entry in lineage if start < entry.start_offset <= end]
        return ((before.epoch, start), *((each.epoch, each.start_offset) for each in inside))

    def finished(self, number: int, index: int) -> RemoteLogSegmentMetadataUpdate:
        """The update that finishes that segment's copy."""
        return finished(self.started(number, index))

    def records(self, number: int) -> Iterator[tuple[int, MetadataRecord]]:
        """The records about a partition, with their metadata offsets."""
        offset = self.claim_offset(number)
        partition, lineage = self.partition(number), self.lineage
        yield (
            offset,
            PartitionClaim(partition, Mode.SIDECAR, lineage[-1].epoch, INCARNATION, 1, lineage),
        )
        yield offset + 1, LogStart(partition, offset, 0, 0)
        for index in range(self.segments_each):
            yield offset + 2 + 2 * index, self.started(number, index)
            yield offset + 3 + 2 * index, self.finished(number, index)

    def writes(self, number: int, count: int) -> tuple[RowWrite, ...]:
        """Rows of a partition after its first `count` segments, without totals and record time."""
        written = MemoryRows()
        rows = OverlayRows(written)
        partition, offset = self.partition(number), self.claim_offset(number)
        for index in range(count):
            if index % SEGMENTS_A_STEP == 0:  # a look at coverage sorts the overlay
                written.write(rows.writes())
                rows = OverlayRows(written)
            segment = self._row(number, index)
            rows.put(keys.segment_key(segment.segment_id.id), encode_segment_record(segment))
            cover(rows, segment)
            for epoch, _, end in epoch_ranges(segment):
                rows.put(keys.highest_copied_key(partition, epoch), values.encode_offset(end))
        rows.put(keys.lineage_key(partition), values.encode_lineage(self.lineage))
        rows.put(keys.topic_name_key(partition), values.encode_offset(offset))
        rows.put(
            keys.partition_key(partition),
            encode_partition(self._partition_row(number, count)),
        )
        written.write(rows.writes())
        return tuple(written.items())

    def _row(self, number: int, index: int) -> RemoteLogSegmentMetadata:
        return finished_row(self.started(number, index), self.claim_offset(number) + 3 + 2 * index)

    def _partition_row(self, number: int, count: int) -> PartitionRow:
        offset = self.claim_offset(number)
        return PartitionRow(
            topic=self.partition(number).topic,
            mode=Mode.SIDECAR,
            mode_offset=offset,
            claim=Claim(offset, self.lineage[-1].epoch, INCARNATION, 1, FIRST_MS),
            log_start_offset=0,
            copy_finished=count,
            size_bytes=count * SEGMENT_BYTES,
        )

    def closing_writes(self, count: int) -> tuple[RowWrite, ...]:
        """Totals and record time, with `count` segments in each partition."""
        totals = Totals(
            copy_finished=self.partitions * count,
            size_bytes=self.partitions * count * SEGMENT_BYTES,
            partitions=self.partitions,
        )
        return (
            (keys.TOTALS_KEY, values.encode_totals(totals)),
            (keys.RECORD_TIME_KEY, values.encode_offset(FIRST_MS)),
        )


SEGMENTS_A_STEP = 32
INCARNATION = Incarnation(NODE_ID, DIRECTORY_ID, 1)


def finished(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate:
    """COPY_SEGMENT_FINISHED by whoever started it."""
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment.segment_id,
        broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_timestamp_ms,
        custom_metadata=CUSTOM_METADATA,
        state=SegmentState.COPY_SEGMENT_FINISHED,
        token=segment.token,
        writer=segment.writer,
    )


def finished_row(segment: RemoteLogSegmentMetadata, offset: int) -> RemoteLogSegmentMetadata:
    """The row that `finished` at this metadata offset makes of it."""
    return replace(
        segment,
        custom_metadata=CUSTOM_METADATA,
        state=SegmentState.COPY_SEGMENT_FINISHED,
        finished_at=offset,
    )


def make_data_directory(path: Path, metadata_set: MetadataSet, *, count: int) -> None:
    """Format `path`, and fill view and snapshot with `count` segments of each partition."""
    format_data_directory(
        path,
        NewDirectory(CLUSTER_ID, KAFKA_CLUSTER_ID, NODE_ID, DIRECTORY_ID, (VOTER,)),
    )
    with open_data_directory(path) as directory:
        view = View.open(directory.view_path)
        try:
            fill(view, metadata_set, count)
            view.flush()
            disk, log_path = OsDisk(), directory.metadata_path / PARTITION_DIRECTORY
            write_log_snapshot(disk, log_path, view)
            quorum_state.store(disk, log_path, quorum_state.QuorumState(1, leader_id=NODE_ID))
        finally:
            view.close()


VOTER = Voter(NODE_ID, DIRECTORY_ID)


def fill(view: View, metadata_set: MetadataSet, count: int) -> None:
    """Write the rows of the first `count` segments of each partition into an empty view."""
    for number in range(metadata_set.partitions):
        view.commit(
            metadata_set.writes(number, count),
            applied_offset=metadata_set.claim_offset(number + 1) - 2,
            epoch=1,
        )
    view.commit(
        metadata_set.closing_writes(count), applied_offset=metadata_set.end_offset - 1, epoch=1
    )


def write_set_snapshot(
    log_path: Path, metadata_set: MetadataSet, voters: tuple[Voter, ...], *, stocked: int
) -> None:
    """Let the log of a node that never started begin with a snapshot of the set, of which the
    first `stocked` partitions have their segments and the others none.
    """
    rows = MemoryRows()
    for number in range(metadata_set.partitions):
        rows.write(metadata_set.writes(number, metadata_set.segments_each * (number < stocked)))
    totals = Totals(
        copy_finished=stocked * metadata_set.segments_each,
        size_bytes=stocked * metadata_set.segments_each * SEGMENT_BYTES,
        partitions=metadata_set.partitions,
    )
    rows.write(
        (
            (keys.TOTALS_KEY, values.encode_totals(totals)),
            (keys.RECORD_TIME_KEY, values.encode_offset(FIRST_MS)),
        )
    )
    disk, snapshot = OsDisk(), SnapshotId(metadata_set.end_offset, 1)
    writer = SnapshotWriter(
        disk, log_path, snapshot, last_contained_timestamp_ms=FIRST_MS, voters=voters
    )
    writer.add(to_proposals(rows.items()))
    writer.finish()
    quorum_state.store(disk, log_path, quorum_state.QuorumState(snapshot.epoch))


def write_log_snapshot(disk: OsDisk, log_path: Path, view: View) -> None:
    """The snapshot that stands for the whole log below it."""
    writer = SnapshotWriter(
        disk,
        log_path,
        SnapshotId(view.applied_offset + 1, view.applied_epoch),
        last_contained_timestamp_ms=view.record_time_ms,
        voters=(VOTER,),
    )
    writer.add(to_proposals(view.rows_in_key_order()))
    writer.finish()
