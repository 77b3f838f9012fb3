"""The trash: retention marks offsets as expired, and the log start follows later.

A mark hides offsets from readers and deletes nothing, so an admin may take it back. After the log
start has moved, this is not possible any more. Wall clocks are not used: a mark's time is the
measured time, or the time that the log start's proposer measured with its monotonic clock
(`rlmm/apply/purge.py`).
"""

from __future__ import annotations

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.lower_end import check_place, check_writer
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    conflict,
    find_live,
    invalid,
)
from rlmm.apply.purge import wait_for_time
from rlmm.partition_state import Expiry, ExpiryHold, Mode
from rlmm.partition_state import ExpiryMark as Mark
from rlmm.records.control_records import ExpiryMark, ExpiryTakenBack, LogStart
from rlmm.records.setting_scope import WHO_CHARACTERS_MAX
from rlmm.rows import keys
from rlmm.rows.expiry import encode_expiry, find_expiry
from rlmm.rows.reads import read_measured_time, read_policy

MARKS_MAX = 64
"""Limit of the marks of a partition; a further one is joined with the last."""
TRASH_MS_MAX = 10 * 366 * 24 * 3_600_000
COUNT_MAX = 2**60
"""Limit of the segments, and of the bytes, that a mark counts, joined marks included."""


def apply_expiry_mark(draft: Draft, record: ExpiryMark) -> Outcome:
    """Accept a mark forward only, by the policy in force, and never past the offsets that are
    copied or recorded as lost.
    """
    partition = record.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    counts = record.segments, record.size_bytes
    if not 0 < record.trash_ms <= TRASH_MS_MAX or not 0 <= min(counts) <= max(counts) <= COUNT_MAX:
        return invalid(f"a mark lasts 1 to {TRASH_MS_MAX} ms, and counts 0 to {COUNT_MAX}")
    problem = check_writer(row, record, "an expiry mark")
    if problem is not None:
        return problem
    if row.mode is not Mode.SIDECAR:
        return conflict(f"{partition} is {row.mode.name}: its broker runs the retention")
    before = find_expiry(draft.rows, partition)
    lowest = max(row.log_start_offset, before.below)
    if record.offset == lowest:
        return NO_EFFECT
    if record.offset < lowest:
        return conflict(f"readers of {partition} start at {lowest}: only an admin takes marks back")
    problem = check_place(draft, row, record, "expiry mark") or on_hold(draft, partition, before)
    if problem is not None:
        return problem
    mark, others = _mark(draft, record), before.marks
    if others and (record.joins or len(others) >= MARKS_MAX):
        mark, others = _joined(others[-1], mark), others[:-1]
    wait_for_time(draft, mark.trash_ms)
    put_expiry(draft, partition, Expiry((*others, mark), None, draft.offset))
    return ACCEPTED


def _mark(draft: Draft, record: ExpiryMark) -> Mark:
    counts_from_ms = wait_for_time(draft, 0)
    return Mark(
        record.offset, draft.offset, counts_from_ms, draft.offset, draft.record_time_ms,
        counts_from_ms, record.trash_ms, record.segments, record.size_bytes, record.why,
    )  # fmt: skip


def _joined(before: Mark, mark: Mark) -> Mark:
    """The joined mark of two, with the time of the later one, so that no segment is deleted before
    its own time is over.
    """
    return mark._replace(
        began_at=before.began_at,
        began_ms=before.began_ms,
        trash_ms=max(before.trash_ms, mark.trash_ms),
        segments=min(before.segments + mark.segments, COUNT_MAX),
        size_bytes=min(before.size_bytes + mark.size_bytes, COUNT_MAX),
    )


def apply_expiry_taken_back(draft: Draft, record: ExpiryTakenBack) -> Outcome:
    """Take back all marks: readers start at the log start again, from where every offset still has
    its segment.

    CONFLICT if the log start has followed meanwhile: NO_EFFECT would report that all is restored.
    """
    partition = record.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    if len(record.who) > WHO_CHARACTERS_MAX:
        return invalid(f"who has at most {WHO_CHARACTERS_MAX} characters")
    if row.mode is Mode.DELEGATED:
        return conflict(f"{partition} is DELEGATED: its broker runs the retention, without trash")
    before = find_expiry(draft.rows, partition)
    policy_offset = read_policy(draft.rows, partition.topic).offset
    if record.replaces_offset != before.offset:
        return conflict(
            f"the trash of {partition} changed at metadata offset {before.offset}, not at "
            f"{record.replaces_offset}: read it again, then decide"
        )
    if not before.marks and record.hold == (before.held_by(policy_offset) is not None):
        return NO_EFFECT
    hold = ExpiryHold(policy_offset, record.who, record.why, draft.record_time_ms)
    put_expiry(draft, partition, Expiry((), hold if record.hold else None, draft.offset))
    return ACCEPTED


def on_hold(draft: Draft, partition: TopicIdPartition, expiry: Expiry) -> Outcome | None:
    """Return CONFLICT while an admin's hold is in force: marks by this policy were taken back."""
    hold = expiry.held_by(read_policy(draft.rows, partition.topic).offset)
    if hold is None:
        return None
    return conflict(
        f"{hold.who} took back what retention of {partition} had marked, and holds it until the "
        "topic has a different retention, or the hold is released"
    )


def not_due(draft: Draft, record: LogStart) -> Outcome | None:
    """Return CONFLICT for a log start of retention that a hold forbids, whose mark does not exist,
    or whose mark's time is not over.
    """
    if record.mark_offset is None:
        return None
    partition = record.partition
    expiry = find_expiry(draft.rows, partition)
    problem = on_hold(draft, partition, expiry)
    if problem is not None or record.mark_offset < 0:
        return problem
    reached = [mark for mark in expiry.marks if mark.marked_at <= record.mark_offset]
    followed = reached and reached[-1].marked_at == record.mark_offset
    if not followed or record.offset > reached[-1].offset:
        return conflict(
            f"no expiry mark of {partition} was made at metadata offset {record.mark_offset} for "
            f"offset {record.offset}, or it was taken back: read the marks again, then decide"
        )
    measured_ms = read_measured_time(draft.rows).ms
    left_ms = max(
        mark.trash_ms - max(record.seen_ms, measured_ms - mark.counts_from_ms, 0)
        for mark in reached
    )
    if left_ms <= 0:
        return None
    return conflict(f"the trash of {partition} is kept for {left_ms} ms more, as measured")


def settle_marks(
    draft: Draft, partition: TopicIdPartition, log_start: int, cut_at: int | None = None
) -> None:
    """Keep the marks above a log start, at most up to the offset where the lineage was cut: records
    from there on are new.
    """
    before = find_expiry(draft.rows, partition)
    marks: list[Mark] = []
    for mark in before.marks:
        if mark.offset > log_start and (cut_at is None or mark.offset <= cut_at):
            marks.append(mark)
        elif cut_at is not None and mark.offset > cut_at > max(
            log_start, marks[-1].offset if marks else log_start
        ):
            marks.append(mark._replace(offset=cut_at))
    if tuple(marks) != before.marks:
        put_expiry(draft, partition, Expiry(tuple(marks), before.hold, draft.offset))


def put_expiry(draft: Draft, partition: TopicIdPartition, expiry: Expiry) -> None:
    """Write the row, or delete it if there is neither a mark nor a hold."""
    key = keys.expiry_key(partition)
    if expiry.marks or expiry.hold is not None:
        draft.rows.put(key, encode_expiry(partition.topic, expiry))
    else:
        draft.rows.delete(key)


def forget_expiry(draft: Draft, partition: TopicIdPartition) -> None:
    """Remove marks and hold: the partition is gone, or its broker runs the retention now."""
    draft.rows.delete(keys.expiry_key(partition))
