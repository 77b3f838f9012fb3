"""The rules of every record that raises the lower end of a log: a log start, an expiry mark."""

from __future__ import annotations

from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from rlmm.apply.outcome import (
    Draft,
    Outcome,
    Verdict,
    decided_otherwise,
    deleting_paused,
    invalid,
    without_token,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import ExpiryMark, LogStart
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import next_offset, read_lineage
from rlmm.segment import OFFSET_MAX


def check_writer(row: PartitionRow, record: LogStart | ExpiryMark, what: str) -> Outcome | None:
    """Return INVALID for what is no offset, FENCED without the standing claim's token."""
    if not 0 <= record.offset <= OFFSET_MAX:
        return invalid(f"{record.offset} is not an offset")
    return without_token(row, record.token, what)


def check_place(
    draft: Draft, row: PartitionRow, record: LogStart | ExpiryMark, what: str
) -> Outcome | None:
    """Check the new lower end. It must lie within the lineage; in sidecar mode never past what is
    copied or recorded as lost; and only the policy that stands may set it, where a policy decided
    it.
    """
    partition = record.partition
    lineage = read_lineage(draft.rows, partition)
    if not _is_in_epoch(lineage, record.offset, record.offset_epoch):
        return Outcome(
            Verdict.DIVERGED,
            f"offset {record.offset} is not in epoch {record.offset_epoch} of the lineage of "
            f"{partition}: read the lineage again",
        )
    following = next_offset(draft.rows, partition, lineage, row.log_start_offset)
    if row.mode is Mode.SIDECAR and 0 <= following < record.offset:
        return Outcome(
            Verdict.GAP,
            f"{what} {record.offset} lies above the next offset {following} of {partition}: "
            "record what is between as a lost range first",
        )
    if record.policy_offset is None:
        return None
    problem = deleting_paused(draft, partition)
    return problem or decided_otherwise(draft, partition, record.policy_offset)


def _is_in_epoch(lineage: Epochs, offset: int, epoch: int) -> bool:
    """True if it is in the epoch; below the lineage, whose start may be too high, in the first."""
    found = epoch_for_offset(lineage, offset)
    if found is None:
        return bool(lineage) and lineage[0].epoch == epoch
    return found == epoch
