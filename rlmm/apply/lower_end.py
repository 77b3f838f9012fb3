"""The common rules of the records that raise the start of a log: log starts and expiry marks."""

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
    """Return INVALID for an impossible offset, FENCED without the token of the claim in force."""
    if not 0 <= record.offset <= OFFSET_MAX:
        return invalid(f"{record.offset} is not an offset")
    return without_token(row, record.token, what)


def check_place(
    draft: Draft, row: PartitionRow, record: LogStart | ExpiryMark, what: str
) -> Outcome | None:
    """Check the new start. It must lie within the lineage; in sidecar mode it must not pass the
    offsets that are copied or recorded as lost; and if a policy decided it, that policy must still
    be in force.
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
            "record the offsets between as a lost range first",
        )
    if record.policy_offset is None:
        return None
    problem = deleting_paused(draft, partition)
    return problem or decided_otherwise(draft, partition, record.policy_offset)


def _is_in_epoch(lineage: Epochs, offset: int, epoch: int) -> bool:
    """True if the lineage has the offset in this epoch. Offsets below the lineage, whose start may
    be too high, count as in its first epoch.
    """
    found = epoch_for_offset(lineage, offset)
    if found is None:
        return bool(lineage) and lineage[0].epoch == epoch
    return found == epoch
