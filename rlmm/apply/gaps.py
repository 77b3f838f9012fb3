"""Offsets without a batch: where they are legal, and what an admin gives up of them."""

from __future__ import annotations

from rlmm.apply.claims import check_partition
from rlmm.apply.offsets import is_recorded, put_joined
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    Verdict,
    find_live,
    is_gone,
    without_token,
    wrong_name,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import GapsAllowed, OffsetsSkipped
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import next_offset, read_lineage, read_partition_row
from rlmm.segment import OFFSET_MAX


def apply_gaps_allowed(draft: Draft, record: GapsAllowed) -> Outcome:
    """Anybody may say so, also of a partition that nobody claimed yet; the first reason stays.

    It is never taken back: what a cleaner removed once does not come back.
    """
    partition = record.partition
    problem = check_partition(partition) or is_gone(draft, partition)
    if problem is not None:
        return problem
    if not record.why:
        return Outcome(Verdict.INVALID, "gaps are allowed for a reason only: name it")
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
    """A lost range that an admin decided on. Nothing above the next offset is served, so it hides
    nothing, wherever it lies there.
    """
    partition = record.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    if not 0 <= record.start <= record.end < OFFSET_MAX:
        return Outcome(Verdict.INVALID, f"{record.start}-{record.end} is no range of offsets")
    if is_recorded(draft, record, row.log_start_offset):
        return NO_EFFECT
    problem = without_token(row, record.token, "a skipped range")
    if problem is not None:
        return problem
    if row.mode is not Mode.SIDECAR:
        return Outcome(
            Verdict.CONFLICT, f"{partition} is {row.mode.name}: the broker decides there"
        )
    lineage = read_lineage(draft.rows, partition)
    following = next_offset(draft.rows, partition, lineage, row.log_start_offset)
    if not 0 <= following <= record.start:
        return Outcome(
            Verdict.CONFLICT,
            f"the next offset of {partition} is {following}, above {record.start}: what is below "
            "it is copied, or lost already; look again, then decide",
        )
    put_joined(draft, record)
    return ACCEPTED
