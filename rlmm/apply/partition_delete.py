"""Deleting a partition: MARKED, which can be undone, STARTED, which cannot, FINISHED.

A step names the record it follows, so that a late step (its outcome was unknown, and the mark was
undone and perhaps set again meanwhile) changes nothing. The grace is the mark's own and is measured
by monotonic clocks: by the proposer of STARTED since it applied the mark, or, if processes did not
run that long, by all nodes together (`rlmm/apply/purge.py`). No wall clock, refused record or quiet
log can shorten it, and a clock that is ahead does not lengthen it.
"""

from __future__ import annotations

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claims import check_partition
from rlmm.apply.expiry import forget_expiry
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    conflict,
    deletes_held_back,
    deleting_paused,
    find,
    gone,
    held_by_move,
    is_gone,
    wrong_name,
)
from rlmm.apply.purge import bury, wait_for_time
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS, UNKNOWN_OFFSET, delete_due_ms
from rlmm.records.control_records import PartitionDeleteUndo
from rlmm.rows import keys, values
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import read_measured_time, read_partition_row
from rlmm.rows.rows import prefix_end
from rlmm.segment import (
    OFFSET_MAX,
    PARTITION_DELETE_TRANSITIONS,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
)


def apply_partition_delete(draft: Draft, step: RemotePartitionDeleteMetadata) -> Outcome:
    """Apply the next step of the deletion, or a repetition of the last one."""
    partition = step.partition
    problem = check_partition(partition)
    if problem is not None:
        return problem
    row = read_partition_row(draft.rows, partition)
    if row is None:
        return _without_row(draft, step)
    wrong = wrong_name(row, partition)
    if wrong is not None:
        return wrong
    held = held_by_move(draft, partition, row.mode)
    if held is not None:
        return held
    if step.state is row.delete_state:
        return _again(partition, row, step)
    if step.state not in PARTITION_DELETE_TRANSITIONS[row.delete_state]:
        now = "not marked" if row.delete_state is None else row.delete_state.name
        return conflict(f"{partition} is {now}, which {step.state.name} does not follow")
    if step.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
        return deletes_held_back(draft) or _finish(draft, partition, row)
    if step.replaces_offset != row.delete_offset:
        return _follows_something_else(partition, row, step)
    if step.state is PartitionDeleteState.DELETE_PARTITION_MARKED:
        wait_for_time(draft, _grace_ms(step))
        row = row._replace(
            delete_marked_at_ms=max(draft.record_time_ms, min(draft.timestamp_ms, OFFSET_MAX)),
            delete_grace_ms=_grace_ms(step),
            delete_counts_from_ms=wait_for_time(draft, 0),
        )
    else:
        problem = deletes_held_back(draft) or deleting_paused(draft, partition)
        problem = problem or _in_grace(draft, partition, row, step.seen_ms)
        if problem is not None:
            return problem
        row = row._replace(claim_voided=row.claim is not None)
    draft.put_partition(
        partition, row._replace(delete_state=step.state, delete_offset=draft.offset)
    )
    return ACCEPTED


def _grace_ms(step: RemotePartitionDeleteMetadata) -> int:
    return DELETE_GRACE_DEFAULT_MS if step.grace_ms < 0 else step.grace_ms


def _again(
    partition: TopicIdPartition, row: PartitionRow, step: RemotePartitionDeleteMetadata
) -> Outcome:
    if step.state is not PartitionDeleteState.DELETE_PARTITION_MARKED:
        return NO_EFFECT
    if row.delete_grace_ms == _grace_ms(step):
        return NO_EFFECT
    return conflict(
        f"{partition} is marked already, with a grace of {row.delete_grace_ms} ms: undo that first"
    )


def _follows_something_else(
    partition: TopicIdPartition, row: PartitionRow, step: RemotePartitionDeleteMetadata
) -> Outcome:
    what = "was marked" if row.delete_state is not None else "had its last mark undone"
    return conflict(
        f"{partition} {what} at metadata offset {row.delete_offset} (-1: never), and "
        f"{step.state.name} names {step.replaces_offset}: read the state again, then decide"
    )


def _in_grace(
    draft: Draft, partition: TopicIdPartition, row: PartitionRow, seen_ms: int
) -> Outcome | None:
    measured_ms = read_measured_time(draft.rows).ms - row.delete_counts_from_ms
    left_ms = delete_due_ms(0, row.delete_grace_ms) - max(seen_ms, measured_ms, 0)
    if left_ms <= 0:
        return None
    return conflict(
        f"the grace of {partition} lasts {left_ms} ms more, as measured: wait, or undo the mark"
    )


def _without_row(draft: Draft, step: RemotePartitionDeleteMetadata) -> Outcome:
    gone = is_gone(draft, step.partition)
    if gone is None:
        return conflict(f"{step.partition} is not known: nothing to delete")
    if step.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
        return NO_EFFECT
    return gone


def _finish(draft: Draft, partition: TopicIdPartition, row: PartitionRow) -> Outcome:
    left = row.copy_started + row.copy_finished + row.delete_started
    if left:
        return conflict(f"{partition} still has {left} segments: finish deleting them first")
    draft.remove_partition(partition)
    draft.rows.delete(keys.lineage_key(partition))
    leave_the_name(draft, partition)
    draft.rows.delete(keys.adopted_key(partition))
    forget_expiry(draft, partition)
    for prefix in (keys.highest_copied_prefix(partition), keys.lost_range_prefix(partition)):
        for key, _ in list(draft.rows.scan(prefix, prefix_end(prefix))):
            draft.rows.delete(key)
    bury(draft, keys.partition_tombstone_key(partition), partition.topic.encode())
    return ACCEPTED


def apply_partition_delete_undo(draft: Draft, undo: PartitionDeleteUndo) -> Outcome:
    """Restore the state from before the mark; the claim is unchanged."""
    row = find(draft, undo.partition)
    if isinstance(row, Outcome):
        return row
    if row.delete_state is None:
        return NO_EFFECT
    if row.delete_state is not PartitionDeleteState.DELETE_PARTITION_MARKED:
        return gone(f"{undo.partition} is {row.delete_state.name}: too late to undo the mark")
    if row.delete_offset != undo.replaces_offset:
        return conflict(
            f"{undo.partition} was marked at metadata offset {row.delete_offset}, not at "
            f"{undo.replaces_offset}: read the state again, then decide"
        )
    draft.put_partition(
        undo.partition,
        row._replace(
            delete_state=None,
            delete_offset=draft.offset,
            delete_marked_at_ms=UNKNOWN_OFFSET,
            delete_grace_ms=-1,
            delete_counts_from_ms=-1,
        ),
    )
    return ACCEPTED


def leave_the_name(draft: Draft, partition: TopicIdPartition) -> None:
    """Remove the partition from its topic's name. The offset at which it was first recorded passes
    to a remaining partition of the topic, if that was recorded later. Topics of the same name are
    ordered by their first record, and an older topic whose first partitions are gone must not
    become the newest.
    """
    key = keys.topic_name_key(partition)
    held = draft.rows.get(key)
    met_at = draft.offset if held is None else values.decode_offset(held)
    draft.rows.delete(key)
    prefix = keys.topic_name_prefix(partition.topic)
    for low, high in ((key, prefix_end(prefix)), (prefix, key)):  # the next one is the nearest
        for other, value in draft.rows.scan(low, high):
            found = keys.partition_of_topic_name_key(other)
            if (found.topic, found.topic_id) == (partition.topic, partition.topic_id):
                earliest = min(met_at, values.decode_offset(value))
                draft.rows.put(other, values.encode_offset(earliest))
                return
