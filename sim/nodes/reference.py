"""The true state: committed records, applied once, in order, by the shipped rules.

Every view is compared with its digests. Two rules are also checked by definitions of their own: who
may write (`fenced_has_no_effect`), and that offsets never retreat.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_formats.errors import CorruptData
from kafka_formats.record_batch import parse_header
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.apply import apply, partition_of
from rlmm.apply.outcome import Verdict
from rlmm.log.committed import committed_records
from rlmm.log.log_directory import StoredBatch
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import (
    ClaimReset,
    FeatureLevel,
    LogStart,
    LostRange,
    PartitionClaim,
    PartitionModeChange,
)
from rlmm.records.records import MetadataRecord, decode
from rlmm.rows import queries
from rlmm.rows.keys import RECORD_TIME_KEY
from rlmm.rows.reads import read_feature_level, read_restart, read_segment
from rlmm.rows.rows import MemoryRows, RowWrite
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from rlmm.view.view import DIGEST_BYTES, row_digest
from sim.nodes.log_copy import StoredBytes

COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED

Check = Callable[[bool, str, str], None]


class Reference:
    """The state; `digests` after each offset, `verdicts` and `values` of each record, and `offsets`
    where a value was committed. `level` is the feature level, raised at `level_offset`.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self.rows = MemoryRows()
        self.digests: dict[int, bytes] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.values: dict[int, bytes] = {}
        self.offsets: dict[bytes, list[int]] = {}
        self.accepted = 0
        self.level = 1
        self.level_offset = 1 << 62
        self._digest = 0
        self._tokens: dict[TopicIdPartition, int | None] = {}

    def restart(self, rows: tuple[tuple[bytes, bytes], ...], end: int) -> None:
        """Begin anew with the rows of a snapshot at `end`: what was recorded since is lost."""
        self.rows = MemoryRows(rows)
        for known in (self.digests, self.verdicts, self.values):
            for offset in [each for each in known if each >= end]:
                del known[offset]
        self._digest = sum(row_digest(key, value) for key, value in rows)
        self._note_digest(end - 1)
        self._tokens.clear()
        self.level = read_feature_level(self.rows)[0]

    def commit(self, batch: StoredBytes) -> None:
        """Apply the next batch of the log."""
        header = parse_header(batch.data, 0, source="committed", position=0)
        stored = StoredBatch(header, batch.data, "committed", 0)
        records = {record.offset: record for record in committed_records(stored)}
        for offset in range(batch.base_offset, batch.end_offset):
            record = records.get(offset)
            if record is not None:
                self._apply(record)
            self._note_digest(offset)

    def apply(self, record: CommittedRecord) -> None:
        """Apply the next record, in a world without batches."""
        self._apply(record)
        self._note_digest(record.offset)

    def _note_digest(self, offset: int) -> None:
        self.digests[offset] = (self._digest % 2**128).to_bytes(DIGEST_BYTES, "big")

    def _apply(self, record: CommittedRecord) -> None:
        decoded = self._decoded(record)
        partition = None if decoded is None else partition_of(decoded)
        before = None if partition is None else queries.partition_state(self.rows, partition)
        segment = self._segment(decoded)
        applied = apply(self.rows, record)
        verdict = applied.outcome.verdict
        self.values[record.offset] = record.value
        self.offsets.setdefault(record.value, []).append(record.offset)
        self.verdicts[record.offset] = verdict
        if verdict is not Verdict.ACCEPTED:
            self._check(
                all(key == RECORD_TIME_KEY for key, _ in applied.writes),
                "fenced_has_no_effect",
                f"{decoded} was judged {verdict} and changes {applied.writes}",
            )
        else:
            self.accepted += 1
            assert decoded is not None
            self._check_right(decoded, before, segment)
        self._write(applied.writes)
        if isinstance(decoded, FeatureLevel) and read_feature_level(self.rows)[0] > self.level:
            self.level, self.level_offset = decoded.level, record.offset
        if verdict is Verdict.ACCEPTED and partition is not None and decoded is not None:
            self._note_claim(decoded, partition, record.offset)
            self._check_offsets(decoded, before, partition)

    def _decoded(self, record: CommittedRecord) -> MetadataRecord | None:
        try:
            return decode(record.control_type, record.value)
        except CorruptData:
            return None

    def _segment(self, record: MetadataRecord | None) -> RemoteLogSegmentMetadata | None:
        if isinstance(record, RemoteLogSegmentMetadataUpdate):
            return read_segment(self.rows, record.segment_id.id)
        return None

    def _write(self, writes: tuple[RowWrite, ...]) -> None:
        for key, value in writes:
            old = self.rows.get(key)
            if old is not None:
                self._digest -= row_digest(key, old)
            if value is not None:
                self._digest += row_digest(key, value)
        self.rows.write(writes)

    # ---- rights, by the claims that were accepted

    def _note_claim(self, record: MetadataRecord, partition: TopicIdPartition, offset: int) -> None:
        """Note the token: the offset of the last accepted claim, unless a record voided it."""
        if isinstance(record, PartitionClaim):
            self._tokens[partition] = offset
        elif isinstance(record, ClaimReset | PartitionModeChange):
            self._tokens[partition] = None
        elif (
            isinstance(record, RemotePartitionDeleteMetadata)
            and record.state is PartitionDeleteState.DELETE_PARTITION_FINISHED
        ):
            self._tokens.pop(partition, None)

    def _check_right(
        self,
        record: MetadataRecord,
        before: PartitionState | None,
        segment: RemoteLogSegmentMetadata | None,
    ) -> None:
        token = None if before is None else self._tokens.get(before.partition)
        going = before is not None and before.delete_state is not None
        right = True
        match record:
            case RemoteLogSegmentMetadata() | LogStart() | LostRange():
                right = record.token == token and not going
            case RemoteLogSegmentMetadataUpdate() if record.state is COPY_FINISHED:
                claim = before.claim if before is not None else None
                assert segment is not None
                # After a restart from a snapshot, what somebody else copied is adopted.
                adopts = read_restart(self.rows) is not None and record.token == token
                right = claim is not None and record.writer == claim.incarnation
                right = right and (adopts or segment.writer == record.writer)
            case RemoteLogSegmentMetadataUpdate() if record.state is DELETE_STARTED:
                assert segment is not None
                right = segment.state is record.expected_state and (record.token == token or going)
            case _:
                pass
        self._check(right, "fenced_has_no_effect", f"{record} was accepted, the token is {token}")

    def _check_offsets(
        self, record: MetadataRecord, before: PartitionState | None, partition: TopicIdPartition
    ) -> None:
        after = queries.partition_state(self.rows, partition)
        if before is None or after is None or isinstance(record, PartitionClaim):
            return
        self._check(
            after.log_start_offset >= before.log_start_offset
            and (after.highest_copied or (-1, -1))[0] >= (before.highest_copied or (-1, -1))[0],
            "offsets_never_retreat",
            f"{record} leads from {before} to {after}",
        )
