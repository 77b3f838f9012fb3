"""Applies committed records to the state. Pure, total, and the same on every node.

This function calls every rule of acceptance; the other files here have the rules by kind of record.
No rule reads a clock, a setting or anything else that could differ between nodes: the outcome
follows from the rows and the record alone. It raises for no content of a record.

Invariant `fenced_has_no_effect`: a record that is not ACCEPTED changes only record time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from kafka_formats.errors import CorruptData
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claims import apply_claim, apply_claim_reset, apply_mode_change
from rlmm.apply.expiry import apply_expiry_mark, apply_expiry_taken_back
from rlmm.apply.gaps import apply_gaps_allowed, apply_offsets_skipped
from rlmm.apply.imports import apply_segments_imported
from rlmm.apply.migration import apply_migration_acknowledged, apply_migration_phase
from rlmm.apply.nodes import (
    apply_node_contested,
    apply_node_registration,
    apply_node_removed,
    apply_node_silence,
    apply_node_stopped,
)
from rlmm.apply.offsets import apply_log_start, apply_lost_range
from rlmm.apply.outcome import Draft, Outcome, Verdict, invalid
from rlmm.apply.partition_delete import apply_partition_delete, apply_partition_delete_undo
from rlmm.apply.purge import apply_time_passed, purge, put_record_time, record_time_with
from rlmm.apply.restart import apply_partition_adopted, apply_reconciled, apply_segment_missing
from rlmm.apply.segments import apply_add, apply_update
from rlmm.apply.settings import apply_cluster_setting, apply_feature_level, apply_topic_policy
from rlmm.apply.shadow import apply_shadow_written, is_shadowed, put_in_outbox
from rlmm.metadata_log import CommittedRecord
from rlmm.records import control_records as control
from rlmm.records.records import MetadataRecord, decode
from rlmm.records.segment_records import SegmentRecord
from rlmm.rows.rows import OverlayRows, RowReader, RowWrite
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

__all__ = ["Applied", "Outcome", "Verdict", "apply"]


class Applied(NamedTuple):
    """Outcome and row writes (in key order) of a record, and its partition, if it is about one."""

    outcome: Outcome
    writes: tuple[RowWrite, ...]
    partition: TopicIdPartition | None


def apply(rows: RowReader, record: CommittedRecord) -> Applied:
    """Judge one committed record against the rows after all earlier records."""
    overlay = OverlayRows(rows)
    outcome, partition = apply_over(overlay, record)
    return Applied(outcome, overlay.writes(), partition)


def apply_over(
    overlay: OverlayRows, record: CommittedRecord
) -> tuple[Outcome, TopicIdPartition | None]:
    """`apply` with the writes carried out in `overlay`: (outcome, partition)."""
    offset, epoch, timestamp_ms, control_type, value = record
    time_ms = record_time_with(overlay, timestamp_ms)
    draft = Draft(overlay, offset, time_ms, timestamp_ms, epoch)
    overlay.begin()
    partition: TopicIdPartition | None = None
    try:
        decoded = decode(control_type, value, offset=offset)
    except CorruptData as error:
        outcome = invalid(str(error))
    else:
        partition = partition_of(decoded)
        # Read this first: the end of a partition's deletion removes its row.
        shadowed = (
            partition is not None and type(decoded) in _SHADOWED and is_shadowed(overlay, partition)
        )
        outcome = _RULES[type(decoded)](draft, decoded)
        if shadowed and outcome.verdict is Verdict.ACCEPTED:
            put_in_outbox(draft, cast(SegmentRecord, decoded))
    if outcome.verdict is Verdict.ACCEPTED:
        purge(draft)
    else:
        overlay.take_back()
    put_record_time(draft)
    return outcome, partition


def partition_of(record: MetadataRecord) -> TopicIdPartition | None:
    """The partition that a record is about, None if it is not about a single one."""
    if isinstance(record, _OF_A_SEGMENT):
        return record.segment_id.partition
    if isinstance(record, _OF_NO_PARTITION):
        return None
    return record.partition


# Tuples, because a union in their place would be built again for each record.
_OF_A_SEGMENT = (RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate)
_SHADOWED = frozenset({*_OF_A_SEGMENT, RemotePartitionDeleteMetadata})
_OF_NO_PARTITION = (
    control.TopicPolicyChange,
    control.FeatureLevel,
    control.Reconciled,
    control.NodeRegistration,
    control.NodeContested,
    control.TimePassed,
    control.NodeSilence,
    control.NodeStopped,
    control.NodeRemoved,
    control.ClusterSetting,
    control.MigrationPhaseChange,
    control.MigrationAcknowledged,
    control.ShadowWritten,
)


_RULES: dict[type, Callable[[Draft, Any], Outcome]] = {
    RemoteLogSegmentMetadata: apply_add,
    RemoteLogSegmentMetadataUpdate: apply_update,
    RemotePartitionDeleteMetadata: apply_partition_delete,
    control.PartitionClaim: apply_claim,
    control.LogStart: apply_log_start,
    control.LostRange: apply_lost_range,
    control.PartitionModeChange: apply_mode_change,
    control.TopicPolicyChange: apply_topic_policy,
    control.ClaimReset: apply_claim_reset,
    control.PartitionDeleteUndo: apply_partition_delete_undo,
    control.FeatureLevel: apply_feature_level,
    control.PartitionAdopted: apply_partition_adopted,
    control.SegmentMissing: apply_segment_missing,
    control.Reconciled: apply_reconciled,
    control.GapsAllowed: apply_gaps_allowed,
    control.OffsetsSkipped: apply_offsets_skipped,
    control.NodeRegistration: apply_node_registration,
    control.NodeContested: apply_node_contested,
    control.TimePassed: apply_time_passed,
    control.NodeSilence: apply_node_silence,
    control.NodeStopped: apply_node_stopped,
    control.NodeRemoved: apply_node_removed,
    control.ClusterSetting: apply_cluster_setting,
    control.ExpiryMark: apply_expiry_mark,
    control.ExpiryTakenBack: apply_expiry_taken_back,
    control.MigrationPhaseChange: apply_migration_phase,
    control.SegmentsImported: apply_segments_imported,
    control.MigrationAcknowledged: apply_migration_acknowledged,
    control.ShadowWritten: apply_shadow_written,
}
