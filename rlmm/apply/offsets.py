"""Log start and lost ranges: a leader's records about the start and the holes of a log."""

from __future__ import annotations

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.expiry import not_due, settle_marks
from rlmm.apply.lower_end import check_place, check_writer
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    conflict,
    find_live,
    invalid,
    without_token,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import LogStart, LostRange, OffsetsSkipped
from rlmm.rows import keys
from rlmm.rows.coverage import Range
from rlmm.rows.feature_level import DELEGATED_LOSS_LEVEL
from rlmm.rows.reads import (
    is_adopting,
    next_offset,
    read_feature_level,
    read_lineage,
    read_lost_ranges,
)
from rlmm.segment import OFFSET_MAX


def apply_log_start(draft: Draft, record: LogStart) -> Outcome:
    """Move the log start forward within the lineage; in sidecar mode never past the offsets that
    are copied or recorded as lost.
    """
    partition = record.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    problem = check_writer(row, record, "a log start")
    if problem is not None:
        return problem
    if record.offset == row.log_start_offset:
        return NO_EFFECT
    if record.offset < row.log_start_offset:
        return conflict(f"log start of {partition} is {row.log_start_offset} and never goes back")
    problem = check_place(draft, row, record, "log start") or not_due(draft, record)
    if problem is not None:
        return problem
    draft.put_partition(partition, row._replace(log_start_offset=record.offset))
    forget_lost_below(draft, partition, record.offset)
    settle_marks(draft, partition, record.offset)
    return ACCEPTED


def forget_lost_below(draft: Draft, partition: TopicIdPartition, offset: int) -> None:
    """Remove lost ranges below a log start: if an earlier lineage comes back, its segments may
    serve these offsets.
    """
    for lost in list(read_lost_ranges(draft.rows, partition, end=offset)):
        if lost.start < offset:
            draft.rows.delete(keys.lost_range_key(partition, lost.start))
            if lost.end >= offset:
                draft.put_lost_range(partition, offset, lost.end, lost.why)


def apply_lost_range(draft: Draft, record: LostRange) -> Outcome:
    """Accept a lost range at the next offset only: elsewhere it would hide copied offsets."""
    following = next_offset_for(draft, record, "a lost range", end_max=OFFSET_MAX)
    if isinstance(following, Outcome):
        return following
    if record.start != following:
        return conflict(
            f"a lost range of {record.partition} starts at the next offset, {following}, not at "
            f"{record.start}: read the state again, then decide"
        )
    put_joined(draft, record)
    return ACCEPTED


def next_offset_for(
    draft: Draft, record: LostRange | OffsetsSkipped, what: str, *, end_max: int
) -> int | Outcome:
    """The partition's next offset if the record may give up offsets; else the record's outcome."""
    partition = record.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    if not 0 <= record.start <= record.end <= end_max:
        return invalid(f"{record.start}-{record.end} is not a range of offsets")
    if _is_recorded(draft, record, row.log_start_offset):
        return NO_EFFECT
    problem = without_token(row, record.token, what)
    if problem is not None:
        return problem
    if row.mode is not Mode.SIDECAR and not _may_lose(draft, record, row.mode):
        return conflict(f"{partition} is {row.mode.name}: in this mode its broker decides")
    lineage = read_lineage(draft.rows, partition)
    return next_offset(draft.rows, partition, lineage, row.log_start_offset)


def _may_lose(draft: Draft, record: LostRange | OffsetsSkipped, mode: Mode) -> bool:
    """True for offsets that, after a restart from a snapshot, neither the store nor a broker that
    tiers the partition itself has.
    """
    return (
        mode is Mode.DELEGATED
        and isinstance(record, LostRange)
        and is_adopting(draft.rows, record.partition)
        and read_feature_level(draft.rows)[0] >= DELEGATED_LOSS_LEVEL
    )


def _is_recorded(draft: Draft, record: LostRange | OffsetsSkipped, log_start: int) -> bool:
    """True if a lost range with this reason covers the record above log start."""
    start = max(record.start, log_start)
    return any(
        lost.start <= start and record.end <= lost.end and lost.why == record.why
        for lost in read_lost_ranges(draft.rows, record.partition, start, start)
    )


def put_joined(draft: Draft, record: LostRange | OffsetsSkipped) -> None:
    """Write the range in place of those that it overlaps, joined with the one directly below if
    that has the same reason.
    """
    shrink_lost_ranges(draft, record.partition, [(record.start, record.end)])
    start = record.start
    if start > 0:
        for below in read_lost_ranges(draft.rows, record.partition, start - 1, start - 1):
            if below.end + 1 == record.start and below.why == record.why:
                start = below.start
    draft.put_lost_range(record.partition, start, record.end, record.why)


def shrink_lost_ranges(draft: Draft, partition: TopicIdPartition, served: list[Range]) -> None:
    """Remove offsets from the lost ranges that the tier serves now."""
    for start, end in served:
        for lost in list(read_lost_ranges(draft.rows, partition, start, end)):
            draft.rows.delete(keys.lost_range_key(partition, lost.start))
            if lost.start < start:
                draft.put_lost_range(partition, lost.start, start - 1, lost.why)
            if end < lost.end:
                draft.put_lost_range(partition, end + 1, lost.end, lost.why)
