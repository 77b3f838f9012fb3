"""Who was accepted had the right to it, by the state before the record: the rules once more."""

from __future__ import annotations

from rlmm.lineage import within_lineage
from rlmm.partition_state import Claim, Mode, PartitionState
from rlmm.records.control_records import (
    ClaimReset,
    LogStart,
    LostRange,
    PartitionAdopted,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
)
from rlmm.records.records import MetadataRecord
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

FENCED = "fenced_has_no_effect"
COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED


def check_rights(
    record: MetadataRecord,
    before: PartitionState,
    segment: RemoteLogSegmentMetadata | None,
    now_ms: int,
) -> None:
    """`segment` is what the record updates, as it was; all of one partition. `now_ms` is the
    measured time with the record.
    """
    if _partition_of(record) != before.partition:
        return
    token = None if before.claim is None else before.claim.token
    match record:
        case RemoteLogSegmentMetadata() | LogStart() | LostRange() | PartitionAdopted():
            assert record.token == token, FENCED
        case RemoteLogSegmentMetadataUpdate():
            assert segment is not None, "an update of nothing"
            _check_update(record, before, segment)
        case PartitionClaim():
            _check_claim(record, before.claim or before.voided_claim, before)
        case PartitionModeChange():
            assert record.replaces_offset == before.mode_offset, "compare and set"
        case RemotePartitionDeleteMetadata():
            _check_partition_delete(record, before, now_ms)
        case PartitionDeleteUndo():
            assert record.replaces_offset == before.delete_offset, "compare and set"
        case ClaimReset():
            last = before.claim or before.voided_claim
            assert last is not None, "compare and set"
            assert record.replaces_offset == last.token, "compare and set"
        case _:
            pass
    if isinstance(record, RemoteLogSegmentMetadata | LogStart | LostRange | PartitionClaim):
        assert before.delete_state is None, "a partition that goes takes nothing"


def _partition_of(record: MetadataRecord) -> object:
    if isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
        return record.segment_id.partition
    return getattr(record, "partition", None)


def _check_update(
    record: RemoteLogSegmentMetadataUpdate,
    before: PartitionState,
    segment: RemoteLogSegmentMetadata,
) -> None:
    claim = before.claim
    if record.state is COPY_FINISHED:
        assert before.delete_state is None, "a partition that goes takes nothing"
        assert segment.state is COPY_STARTED, "delete_order"
        assert claim is not None, FENCED
        assert record.writer == claim.incarnation, FENCED
        assert before.adopting or record.writer == segment.writer, FENCED
        assert before.mode is not Mode.DELEGATED or record.token == claim.token, FENCED
        if before.mode is Mode.SIDECAR:
            inside = within_lineage(
                segment.start_offset,
                segment.end_offset,
                segment.leader_epochs,
                before.lineage,
                None,
            )
            assert inside, "no_bad_byte: outside the lineage"
            assert segment.start_offset <= before.next_offset, "no_hole: a gap"
    elif record.state is DELETE_STARTED:
        assert record.expected_state is segment.state, "delete_order: compare and set"
        if before.delete_state is not PartitionDeleteState.DELETE_PARTITION_STARTED:
            assert claim is not None, FENCED
            assert record.token == claim.token, FENCED
            assert not before.adopting, "foreign_is_untouched: not recorded yet"
    else:
        assert segment.state is DELETE_STARTED, "delete_order"


def _check_partition_delete(
    record: RemotePartitionDeleteMetadata, before: PartitionState, measured_ms: int
) -> None:
    if record.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
        return  # what is left of the segments is looked at by the caller
    assert record.replaces_offset == before.delete_offset, "grace: another mark"
    if record.state is PartitionDeleteState.DELETE_PARTITION_STARTED:
        passed_ms = max(record.seen_ms, measured_ms - before.delete_counts_from_ms, 0)
        assert passed_ms >= before.delete_grace_ms, "grace: not over"


def _check_claim(record: PartitionClaim, last: Claim | None, before: PartitionState) -> None:
    """The reset of a claim is not in the state; without one, an epoch has one directory."""
    assert record.mode is before.mode, "mode"
    if last is None:
        return
    assert record.leader_epoch >= last.leader_epoch, FENCED
    if record.leader_epoch == last.leader_epoch and before.claim is not None:
        mine, theirs = record.incarnation, last.incarnation
        assert mine.directory_id == theirs.directory_id, FENCED
        assert (mine.boot_counter, record.claim_number) > (
            theirs.boot_counter,
            last.claim_number,
        ), FENCED
