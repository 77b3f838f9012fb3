"""What a committed record does to the state. Pure, total, and the same on every node.

Every rule of acceptance is behind this one function; the files beside it hold them by kind of
record. Nothing here reads a clock, a setting or anything else that could differ between nodes: a
record's outcome follows from the rows and the record alone. No bytes make it raise.

Invariant `fenced_has_no_effect`: a record that is not ACCEPTED moves record time and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_formats.errors import CorruptData
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claims import apply_claim, apply_claim_reset, apply_mode_change
from rlmm.apply.gaps import apply_gaps_allowed, apply_offsets_skipped
from rlmm.apply.nodes import apply_node_contested, apply_node_registration
from rlmm.apply.offsets import apply_log_start, apply_lost_range
from rlmm.apply.outcome import Draft, Outcome, Verdict
from rlmm.apply.partition_delete import apply_partition_delete, apply_partition_delete_undo
from rlmm.apply.purge import apply_time_passed, purge, put_record_time, record_time_with
from rlmm.apply.restart import apply_partition_adopted, apply_reconciled, apply_segment_missing
from rlmm.apply.segments import apply_add, apply_update
from rlmm.apply.settings import apply_feature_level, apply_topic_policy
from rlmm.metadata_log import CommittedRecord
from rlmm.records.control_records import (
    ClaimReset,
    FeatureLevel,
    GapsAllowed,
    LogStart,
    LostRange,
    NodeContested,
    NodeRegistration,
    OffsetsSkipped,
    PartitionAdopted,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    Reconciled,
    SegmentMissing,
    TimePassed,
    TopicPolicyChange,
)
from rlmm.records.records import MetadataRecord, decode
from rlmm.rows.rows import OverlayRows, RowReader, RowWrite
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

__all__ = ["Applied", "Outcome", "Verdict", "apply"]


class Applied(NamedTuple):
    """What became of a record, and the row writes that make it so, in key order. `partition` is the
    one it was about, None for records about no partition and undecodable ones.
    """

    outcome: Outcome
    writes: tuple[RowWrite, ...]
    partition: TopicIdPartition | None


def apply(rows: RowReader, record: CommittedRecord) -> Applied:
    """Judge one committed record against the rows as all records before it left them."""
    overlay = OverlayRows(rows)
    outcome, partition = apply_over(overlay, record)
    return Applied(outcome, overlay.writes(), partition)


def apply_over(
    overlay: OverlayRows, record: CommittedRecord
) -> tuple[Outcome, TopicIdPartition | None]:
    """The same, with the writes carried out in `overlay`: (outcome, partition)."""
    offset, _, timestamp_ms, control_type, value = record
    draft = Draft(overlay, offset, record_time_with(overlay, timestamp_ms), timestamp_ms)
    overlay.begin()
    partition: TopicIdPartition | None = None
    try:
        decoded = decode(control_type, value, offset=offset)
    except CorruptData as error:
        outcome = Outcome(Verdict.INVALID, str(error))
    else:
        partition = partition_of(decoded)
        outcome = _judge(draft, decoded)
    if outcome.verdict is Verdict.ACCEPTED:
        purge(draft)
    else:
        overlay.take_back()
    put_record_time(draft)
    return outcome, partition


def partition_of(record: MetadataRecord) -> TopicIdPartition | None:
    """The partition that a record is about, None for what is about no single one."""
    if isinstance(record, _OF_A_SEGMENT):
        return record.segment_id.partition
    if isinstance(record, _OF_NO_PARTITION):
        return None
    return record.partition


# Tuples: a union in their place would be made anew for each record.
_OF_A_SEGMENT = (RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate)
_OF_NO_PARTITION = (
    TopicPolicyChange,
    FeatureLevel,
    Reconciled,
    NodeRegistration,
    NodeContested,
    TimePassed,
)


def _judge(draft: Draft, record: MetadataRecord) -> Outcome:
    match record:
        case RemoteLogSegmentMetadata():
            return apply_add(draft, record)
        case RemoteLogSegmentMetadataUpdate():
            return apply_update(draft, record)
        case RemotePartitionDeleteMetadata():
            return apply_partition_delete(draft, record)
        case PartitionClaim():
            return apply_claim(draft, record)
        case LogStart():
            return apply_log_start(draft, record)
        case LostRange():
            return apply_lost_range(draft, record)
        case PartitionModeChange():
            return apply_mode_change(draft, record)
        case TopicPolicyChange():
            return apply_topic_policy(draft, record)
        case ClaimReset():
            return apply_claim_reset(draft, record)
        case PartitionDeleteUndo():
            return apply_partition_delete_undo(draft, record)
        case FeatureLevel():
            return apply_feature_level(draft, record)
        case PartitionAdopted():
            return apply_partition_adopted(draft, record)
        case SegmentMissing():
            return apply_segment_missing(draft, record)
        case Reconciled():
            return apply_reconciled(draft, record)
        case GapsAllowed():
            return apply_gaps_allowed(draft, record)
        case OffsetsSkipped():
            return apply_offsets_skipped(draft, record)
        case NodeRegistration():
            return apply_node_registration(draft, record)
        case NodeContested():
            return apply_node_contested(draft, record)
        case TimePassed():
            return apply_time_passed(draft, record)
