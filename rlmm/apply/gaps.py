"""Offsets without a batch: partitions where they are legal, and ranges that an admin gives up."""

from __future__ import annotations

from rlmm.apply.claims import check_partition
from rlmm.apply.offsets import next_offset_for, put_joined
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    conflict,
    find_live,
    invalid,
    is_gone,
    wrong_name,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import GapsAllowed, OffsetsSkipped
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import read_partition_row
from rlmm.segment import OFFSET_MAX


def apply_gaps_allowed(draft: Draft, record: GapsAllowed) -> Outcome:
    """Accept the record from any node, even before the first claim. It is never taken back, and the
    first reason is kept.
    """
    partition = record.partition
    problem = check_partition(partition) or is_gone(draft, partition)
    if problem is not None:
        return problem
    if not record.why:
        return invalid("gaps are allowed only with a reason: give one")
    row = read_partition_row(draft.rows, partition)
    if row is None:
        draft.create_partition(
            partition,
            PartitionRow(partition.topic, Mode.SIDECAR, mode_offset=-1, gaps_allowed=record.why),
        )
        return ACCEPTED
    found = wrong_name(row, partition) or find_live(draft, partition)
    if isinstance(found, Outcome):
        return found
    if row.gaps_allowed:
        return NO_EFFECT
    draft.put_partition(partition, row._replace(gaps_allowed=record.why))
    return ACCEPTED


def apply_offsets_skipped(draft: Draft, record: OffsetsSkipped) -> Outcome:
    """Record a lost range that an admin decided on. It may begin anywhere at or above the next
    offset, where no offset is copied yet.
    """
    following = next_offset_for(draft, record, "a skipped range", end_max=OFFSET_MAX - 1)
    if isinstance(following, Outcome):
        return following
    if not 0 <= following <= record.start:
        return conflict(
            f"the next offset of {record.partition} is {following}, above {record.start}: offsets "
            "below it are copied or lost already; read the state again, then decide"
        )
    put_joined(draft, record)
    return ACCEPTED
