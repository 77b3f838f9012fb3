"""Reconciles the state with the store after a restart from a snapshot.

The snapshot is older than the store. Segments copied since have no row: each partition's claimant
adds and finishes them, then records PartitionAdopted. Segments deleted since have a row without
objects: an admin who compared a full listing with the state records SegmentMissing for each, then
Reconciled. Until Reconciled nothing is deleted (`deletes_held_back`).

A missing segment may have been replaced since the snapshot by one that has no row yet (repair). So
its offsets are lost ranges until the partition is adopted; then log start moves past those at the
low end.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.expiry import settle_marks
from rlmm.apply.offsets import forget_lost_below
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    conflict,
    find,
    find_live,
    without_token,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionAdopted, Reconciled, SegmentMissing
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows import keys, values
from rlmm.rows.coverage import EpochRange, ranges_in_lineage, uncover
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import (
    is_adopting,
    read_lineage,
    read_lost_ranges,
    read_partition_row,
    read_restart,
    read_segment,
)
from rlmm.segment import SegmentState

MISSING = "not in the store after a restart from a snapshot"


def apply_partition_adopted(draft: Draft, record: PartitionAdopted) -> Outcome:
    """Accept the record from the claimant, once per partition."""
    partition = record.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    key = keys.adopted_key(partition)
    if draft.rows.get(key) is not None:
        return NO_EFFECT
    problem = without_token(row, record.token, "the end of an adoption")
    if problem is not None:
        return problem
    if read_restart(draft.rows) is None:
        return _no_restart()
    draft.rows.put(key, values.encode_offset(draft.offset))
    if row.mode is Mode.SIDECAR:
        _let_go(draft, partition, row)
    return ACCEPTED


def apply_reconciled(draft: Draft, record: Reconciled) -> Outcome:
    """Accept an admin's record that names the restart whose state was compared."""
    restart = read_restart(draft.rows)
    if restart is None:
        return _no_restart()
    if restart.offset != record.restart_offset:
        return conflict(
            f"the metadata was restarted at offset {restart.offset}, not at "
            f"{record.restart_offset}: reconcile again"
        )
    if restart.is_reconciled:
        return NO_EFFECT
    reconciled = replace(restart, reconciled_offset=draft.offset)
    draft.rows.put(keys.RESTART_KEY, values.encode_restart(reconciled))
    return ACCEPTED


def apply_segment_missing(draft: Draft, record: SegmentMissing) -> Outcome:
    """Accept an admin's record that a finished segment of the snapshot is not in the store.

    Offsets that no other segment serves are lost. A hole at the low end was made by the retention
    of the lost cluster, so log start moves past it, once the partition is adopted.
    """
    partition = record.partition
    restart = read_restart(draft.rows)
    if restart is None:
        return _no_restart()
    known = read_segment(draft.rows, record.segment)
    if known is None or known.segment_id.partition != partition:
        return conflict(f"{partition} has no segment {record.segment}: reconcile again")
    if known.finished_at != record.finished_at:
        return conflict(f"segment {record.segment} was finished at {known.finished_at}")
    if known.state is SegmentState.DELETE_SEGMENT_STARTED:
        return NO_EFFECT
    if known.state is not SegmentState.COPY_SEGMENT_FINISHED:
        return conflict(f"segment {record.segment} is {known.state.name}")
    if restart.is_reconciled or known.finished_at >= restart.offset:
        return conflict(
            f"only segments of the snapshot, up to offset {restart.offset}, may be missing, and "
            "only until the reconciliation is recorded"
        )
    row = find(draft, partition)
    if isinstance(row, Outcome):
        return row
    unserved = uncover(draft.rows, known)
    gone = replace(known, state=SegmentState.DELETE_SEGMENT_STARTED)
    draft.rows.put(keys.segment_key(record.segment), encode_segment_row(gone))
    draft.rows.put(keys.unfinished_key(partition, record.segment), b"")
    draft.count(partition, row, copy_finished=-1, delete_started=1, size_bytes=-known.size_bytes)
    if row.mode is Mode.SIDECAR:
        counted = read_partition_row(draft.rows, partition)
        assert counted is not None, "it was just written"
        _lose(draft, partition, counted, unserved)
        if not is_adopting(draft.rows, partition):
            _let_go(draft, partition, counted)
    return ACCEPTED


def _lose(
    draft: Draft, partition: TopicIdPartition, row: PartitionRow, unserved: list[EpochRange]
) -> None:
    """Record the unserved offsets above log start as lost."""
    for start, end in ranges_in_lineage(read_lineage(draft.rows, partition), unserved):
        if end >= row.log_start_offset:
            draft.put_lost_range(partition, max(start, row.log_start_offset), end, MISSING)


def _let_go(draft: Draft, partition: TopicIdPartition, row: PartitionRow) -> None:
    """Move log start past missing offsets at the low end."""
    log_start = row.log_start_offset
    for lost in read_lost_ranges(draft.rows, partition, max(log_start, 0)):
        if lost.start > log_start or lost.why != MISSING:
            break
        log_start = lost.end + 1
    if log_start != row.log_start_offset:
        draft.put_partition(partition, row._replace(log_start_offset=log_start))
        forget_lost_below(draft, partition, log_start)
        settle_marks(draft, partition, log_start)


def _no_restart() -> Outcome:
    return conflict("the metadata was not restarted from a snapshot: nothing to reconcile")
