"""The effect of a claim on lost ranges: with a changed lineage, offsets may count as copied that no
segment serves.

Invariant `no_hole`: between log start and highest copied every offset of the lineage is served, or
recorded as lost. Copies alone keep it, since none may leave a gap. A claim could break it: an epoch
comes back whose copies were deleted while it was diverged, a longer head becomes known, or the
broker deleted segments by its own rules while the partition was delegated.
"""

from __future__ import annotations

from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.offsets import forget_lost_below, shrink_lost_ranges
from rlmm.apply.outcome import Draft
from rlmm.lineage import MergedLineage
from rlmm.rows import keys
from rlmm.rows.coverage import Range, uncovered_ranges, without
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import highest_copied, read_lost_ranges

LINEAGE_CHANGED = "not in the tier since the lineage changed"


def forget_lost_ranges(draft: Draft, partition: TopicIdPartition, cut_at: int) -> None:
    """Remove lost ranges of the tail that was cut off: they are not about the new tail."""
    for lost in list(read_lost_ranges(draft.rows, partition, cut_at)):
        if lost.start < cut_at:
            draft.put_lost_range(partition, lost.start, cut_at - 1, lost.why)
        else:
            draft.rows.delete(keys.lost_range_key(partition, lost.start))


def record_holes(
    draft: Draft, partition: TopicIdPartition, log_start: int, before: Epochs, merged: MergedLineage
) -> None:
    """Record as lost the offsets that count as copied in the changed lineage but that no segment
    serves. A node that still has such offsets copies them, which removes them from the lost ranges.
    """
    lineage = merged.epochs
    highest = highest_copied(draft.rows, partition, lineage)
    if highest is None:
        return
    if before and before[0] != lineage[0]:
        head = max(before[0].start_offset, lineage[0].start_offset) - 1
        start = log_start if log_start >= 0 else lineage[0].start_offset
        _record(draft, partition, lineage, (start, min(head, highest[0])))
    if merged.cut_at is not None:
        # Below the cut nothing changed, but offsets that were not copied in the old lineage may now
        # lie below an epoch that comes back with copies.
        counted = highest_copied(draft.rows, partition, before)
        copied_to = log_start if counted is None else counted[0] + 1
        start = merged.cut_at if copied_to < 0 else min(merged.cut_at, copied_to)
        _record(draft, partition, lineage, (max(start, log_start), highest[0]))


def _record(draft: Draft, partition: TopicIdPartition, lineage: Epochs, range_: Range) -> None:
    for start, end in _not_recorded(draft, partition, lineage, range_):
        draft.put_lost_range(partition, start, end, LINEAGE_CHANGED)


def _not_recorded(
    draft: Draft, partition: TopicIdPartition, lineage: Epochs, range_: Range
) -> list[Range]:
    """The holes of a range that are not lost ranges yet. Served offsets leave the lost ranges."""
    if range_[0] > range_[1]:
        return []
    holes = uncovered_ranges(draft.rows, partition, lineage, *range_)
    shrink_lost_ranges(draft, partition, without([range_], *holes))
    lost = list(read_lost_ranges(draft.rows, partition, *range_))
    return without(holes, *((each.start, each.end) for each in lost))


def settle_after_mode_change(
    draft: Draft, partition: TopicIdPartition, row: PartitionRow, merged: MergedLineage
) -> PartitionRow:
    """Check all offsets that count as copied, at the first sidecar claim since the mode was set.

    The broker may have deleted segments in delegated mode. A hole at the low end was made by its
    retention, so log start moves past it, up to the offset where this claim changes the lineage;
    holes above are lost. Returns the row with the log start.
    """
    lineage = merged.epochs
    highest = highest_copied(draft.rows, partition, lineage)
    start = max(row.log_start_offset, 0)
    if highest is None or highest[0] < start:
        return row
    holes = _not_recorded(draft, partition, lineage, (start, highest[0]))
    if holes and holes[0][0] == start and merged.cut_at != start:
        end = holes[0][1] + 1
        retained = end if merged.cut_at is None else min(end, merged.cut_at)
        row = row._replace(log_start_offset=retained)
        holes = without(holes, (start, retained - 1))
        forget_lost_below(draft, partition, row.log_start_offset)
    elif row.log_start_offset < 0:
        row = row._replace(log_start_offset=start)
    for hole in holes:
        _record(draft, partition, lineage, hole)
    return row
