"""Claims, and an admin's changes to them: mode changes and resets.

A claim makes a node the one writer of a partition; the metadata offset of the claim record is the
token of that leadership. It also merges the broker's leader epoch checkpoint into the lineage.
"""

from __future__ import annotations

from functools import lru_cache

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claim_holes import forget_lost_ranges, record_holes, settle_after_mode_change
from rlmm.apply.expiry import forget_expiry, settle_marks
from rlmm.apply.offsets import forget_lost_below
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    Verdict,
    conflict,
    fenced,
    find_live,
    held_by_move,
    invalid,
    is_gone,
    wrong_name,
)
from rlmm.lineage import MergedLineage, merge
from rlmm.migration_phase import MOVING_PHASES
from rlmm.partition_state import CLAIMABLE_MODES, UNKNOWN_OFFSET, Claim, Mode
from rlmm.records.control_records import ClaimReset, PartitionClaim, PartitionModeChange
from rlmm.rows import keys, values
from rlmm.rows.coverage import covered_ranges, offsets_taken_out
from rlmm.rows.migration import find_migration
from rlmm.rows.nodes import find_node
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import (
    highest_copied,
    read_lineage,
    read_lost_ranges,
    read_partition_row,
    read_restart,
)
from rlmm.segment import OFFSET_MAX

LINEAGE_CUT_OFFSETS_MAX = 100_000
LINEAGE_EPOCHS_MAX = 100_000
EPOCH_MAX = 2**31 - 1


def apply_claim(draft: Draft, claim: PartitionClaim) -> Outcome:
    """Accept a claim for a leader epoch above the claimed one, or a new one of the claimant."""
    return judge_claim(draft, claim)[0]


def judge_claim(draft: Draft, claim: PartitionClaim) -> tuple[Outcome, MergedLineage | None]:
    """Apply a claim; returns the merged lineage too, None if the lineage does not change."""
    partition = claim.partition
    problem = (
        check_partition(partition)
        or _check_claim(claim)
        or is_gone(draft, partition)
        or _unregistered(draft, claim)
    )
    if problem is not None:
        return problem, None
    known = read_partition_row(draft.rows, partition)
    if known is not None:
        row = find_live(draft, partition)
        if isinstance(row, Outcome):
            return row, None
        if row.claim is None and row.mode_offset < 0:  # known for its gaps alone
            row = row._replace(mode=claim.mode, mode_offset=draft.offset)
    else:
        row = PartitionRow(partition.topic, claim.mode, mode_offset=draft.offset)
    held = held_by_move(draft, partition, row.mode)
    if held is not None:
        return held, None
    if row.mode is not claim.mode:
        return invalid(
            f"{partition} is recorded as {row.mode.name}, but the claim has {claim.mode.name}: "
            "an admin has to change the mode first"
        ), None
    before = _with_proven_head(draft, claim, row.log_start_offset)
    try:
        merged = merge(
            before,
            claim.leader_epochs,
            leader_epoch=claim.leader_epoch,
            higher_epoch=_is_higher(row, claim),
        )
    except InvalidRequest as error:
        return _fenced(draft, row, claim) or invalid(str(error)), None
    if _is_repeated(row, claim) and merged == MergedLineage(before, None):
        return NO_EFFECT, None
    problem = _fenced(draft, row, claim) or _suspect(draft, row, claim, before, merged)
    if problem is not None:
        return problem, None
    _accept(draft, claim, row, before, merged, is_new=known is None)
    return ACCEPTED, merged


@lru_cache(maxsize=4_096)
def check_partition(partition: TopicIdPartition) -> Outcome | None:
    """Return INVALID for a name, id or number that no Kafka topic can have."""
    try:
        check_topic_name(partition.topic)
    except InvalidRequest as error:
        return invalid(str(error))
    if partition.partition < 0:
        return invalid(f"{partition.partition} is not a partition number")
    if not any(partition.topic_id):
        return invalid("a topic without a topic id cannot be tiered")
    return None


def _check_claim(claim: PartitionClaim) -> Outcome | None:
    if claim.mode not in CLAIMABLE_MODES:
        return invalid(f"a partition in mode {claim.mode.name} cannot be claimed")
    if claim.incarnation.node_id < 0 or claim.incarnation.boot_counter < 0:
        return invalid(f"{claim.incarnation} is not an incarnation of a node")
    if claim.claim_number < 0 or claim.leader_epoch < 0 or claim.local_log_start_offset < -1:
        return invalid("claim number, epoch and local log start are not negative")
    if any(entry.start_offset > OFFSET_MAX for entry in claim.leader_epochs):
        return invalid(f"an epoch starts above offset {OFFSET_MAX}")
    if any(entry.epoch > EPOCH_MAX for entry in claim.leader_epochs):
        return invalid(f"no leader epoch is above {EPOCH_MAX}")
    if len(claim.leader_epochs) > LINEAGE_EPOCHS_MAX:
        return invalid(f"the checkpoint has more than {LINEAGE_EPOCHS_MAX} entries")
    return None


def _with_proven_head(draft: Draft, claim: PartitionClaim, log_start: int) -> Epochs:
    """The recorded lineage, its first epoch extended down to the lowest offset that it serves
    according to the coverage.

    Look-ups treat the first epoch as open downwards. Merged with a checkpoint that begins at the
    same offset but does not have that epoch, the lineage would lose it, with everything it serves
    below.
    """
    lineage = read_lineage(draft.rows, claim.partition)
    if not lineage or not 0 <= log_start < lineage[0].start_offset:
        return lineage
    head = lineage[0]
    if any(entry.epoch == head.epoch for entry in claim.leader_epochs):
        return lineage
    end = head.start_offset - 1
    served = next(covered_ranges(draft.rows, claim.partition, head.epoch, log_start, end), None)
    if served is None:
        return lineage
    return (head._replace(start_offset=max(served.start, log_start)), *lineage[1:])


def _is_higher(row: PartitionRow, claim: PartitionClaim) -> bool:
    last = row.claim
    return row.reset_stands or last is None or claim.leader_epoch > last.leader_epoch


def _is_repeated(row: PartitionRow, claim: PartitionClaim) -> bool:
    standing = row.standing_claim
    return (
        standing is not None
        and standing.leader_epoch == claim.leader_epoch
        and standing.incarnation == claim.incarnation
        and standing.claim_number == claim.claim_number
    )


def _fenced(draft: Draft, row: PartitionRow, claim: PartitionClaim) -> Outcome | None:
    last = row.claim
    if last is None or claim.leader_epoch > last.leader_epoch:
        return None
    if claim.leader_epoch < last.leader_epoch:
        return fenced(
            f"epoch {claim.leader_epoch} of {claim.partition} is over: node "
            f"{last.incarnation.node_id} claimed it at epoch {last.leader_epoch}"
        )
    if row.reset_stands or _is_from_before_restart(draft, last):
        return None
    mine, theirs = claim.incarnation, last.incarnation
    if mine.node_id == theirs.node_id and _took_over(draft, claim, last):
        return None
    if (mine.node_id, mine.directory_id) != (theirs.node_id, theirs.directory_id):
        return fenced(
            f"epoch {claim.leader_epoch} of {claim.partition} is claimed by node {theirs.node_id} "
            f"with directory {theirs.directory_id}: one epoch has one leader"
        )
    if (mine.boot_counter, claim.claim_number) <= (theirs.boot_counter, last.claim_number):
        return fenced(
            f"claim {claim.claim_number} of boot {mine.boot_counter} is older than claim "
            f"{last.claim_number} of boot {theirs.boot_counter}"
        )
    return None


def _took_over(draft: Draft, claim: PartitionClaim, last: Claim) -> bool:
    """True if the claimant's directory has taken over the node id since: its broker may still lead
    at that epoch.
    """
    node = find_node(draft.rows, claim.incarnation.node_id)
    return (
        node is not None
        and node.directory_id == claim.incarnation.directory_id != last.incarnation.directory_id
        and node.voids(last)
    )


def _unregistered(draft: Draft, claim: PartitionClaim) -> Outcome | None:
    """Return FENCED for a process that lost its node id to a different one, or shares it."""
    mine = claim.incarnation
    node = find_node(draft.rows, mine.node_id)
    if node is None:
        return None
    if node.contested:
        return fenced(
            f"two live processes have node id {mine.node_id}: stop one of them, give it a new id "
            "if it is to run again, and restart the other"
        )
    if node.directory_id != mine.directory_id:
        return fenced(
            f"node {mine.node_id} registered with directory {node.directory_id} at metadata offset "
            f"{node.offset}: this process, with {mine.directory_id}, has lost its node id"
        )
    return None


def _is_from_before_restart(draft: Draft, claim: Claim) -> bool:
    """True for a claim by a node that was formatted again since, whose broker may still lead."""
    restart = read_restart(draft.rows)
    return restart is not None and claim.token < restart.offset


def _suspect(
    draft: Draft,
    row: PartitionRow,
    claim: PartitionClaim,
    before: Epochs,
    merged: MergedLineage,
) -> Outcome | None:
    """Return SUSPECT for a claim that takes too many copied offsets out of the lineage. A reset
    allows only the cut that an admin confirmed, since the next claim may come from a different
    node, after an unforeseen election. A claim at a claimed epoch, which only a reset admits, may
    cut nothing else.
    """
    if merged.cut_at is None or 0 <= row.reset_cut_at <= merged.cut_at:
        return None
    highest = highest_copied(draft.rows, claim.partition, before)
    if highest is None:
        return None
    first, last = max(merged.cut_at, row.log_start_offset), highest[0]
    lost = read_lost_ranges(draft.rows, claim.partition, first, last)
    uncovered = offsets_taken_out(before, merged.epochs, first, last, lost)
    is_new_epoch = row.claim is None or claim.leader_epoch > row.claim.leader_epoch
    limit = LINEAGE_CUT_OFFSETS_MAX if is_new_epoch else 0
    if uncovered <= limit:
        return None
    way_out = "an admin has to reset the claim, then it is accepted"
    if row.reset_stands:
        confirmed = "no cut" if row.reset_cut_at < 0 else f"a cut at {row.reset_cut_at} or above"
        way_out = f"an admin has to reset it again: the reset in force allows {confirmed}"
    return Outcome(
        Verdict.SUSPECT,
        f"this claim would cut the lineage of {claim.partition} at offset {merged.cut_at} and take "
        f"{uncovered} copied offsets out of it (limit {limit}): if the broker really lost them, "
        f"{way_out}",
    )


def _accept(
    draft: Draft,
    claim: PartitionClaim,
    row: PartitionRow,
    before: Epochs,
    merged: MergedLineage,
    *,
    is_new: bool,
) -> None:
    partition = claim.partition
    cut_at = merged.cut_at
    log_start = _log_start(draft, claim, row, before, merged)
    since_mode = row.claim is None or row.claim.token < row.mode_offset
    row = row._replace(
        claim=Claim(
            token=draft.offset,
            leader_epoch=claim.leader_epoch,
            incarnation=claim.incarnation,
            claim_number=claim.claim_number,
            timestamp_ms=draft.record_time_ms,
        ),
        claim_voided=False,
        reset_stands=False,
        reset_cut_at=UNKNOWN_OFFSET,
        log_start_offset=log_start if cut_at is None else min(log_start, cut_at),
        local_log_start_offset=claim.local_log_start_offset,
    )
    draft.rows.put(keys.lineage_key(partition), values.encode_lineage(merged.epochs))
    if cut_at is not None:
        forget_lost_ranges(draft, partition, cut_at)
        forget_lost_below(draft, partition, row.log_start_offset)
    if log_start == UNKNOWN_OFFSET:
        forget_lost_ranges(draft, partition, 0)
    if row.mode is Mode.SIDECAR and since_mode:
        row = settle_after_mode_change(draft, partition, row, merged)
    elif row.mode is Mode.SIDECAR:
        record_holes(draft, partition, row.log_start_offset, before, merged)
    settle_marks(draft, partition, row.log_start_offset, cut_at)
    if is_new:
        draft.create_partition(partition, row)
    else:
        draft.put_partition(partition, row)


def _log_start(
    draft: Draft, claim: PartitionClaim, row: PartitionRow, before: Epochs, merged: MergedLineage
) -> int:
    """The log start after a claim. If nothing was ever copied, log start and lost ranges describe
    only the log of the leader that recorded them: a later leader whose log begins lower has those
    offsets, and records its log start again.
    """
    own = claim.local_log_start_offset
    if row.mode is not Mode.SIDECAR or not 0 <= own < row.log_start_offset:
        return row.log_start_offset
    for lineage in (before, merged.epochs):
        if highest_copied(draft.rows, claim.partition, lineage) is not None:
            return row.log_start_offset
    return UNKNOWN_OFFSET


def apply_mode_change(draft: Draft, change: PartitionModeChange) -> Outcome:
    """Apply an admin's change of the mode; it voids the claim, so that the writer in the old mode
    is fenced.
    """
    partition = change.partition
    problem = check_partition(partition) or is_gone(draft, partition)
    if problem is not None:
        return problem
    row = read_partition_row(draft.rows, partition)
    problem = _mode_is_moving(draft, change, row)
    if problem is not None:
        return problem
    if row is None:
        if change.replaces_offset != -1:
            return conflict(f"{partition} has no mode yet: name offset -1")
        draft.create_partition(
            partition, PartitionRow(partition.topic, change.mode, mode_offset=draft.offset)
        )
        return ACCEPTED
    found = wrong_name(row, partition) or find_live(draft, partition)
    if isinstance(found, Outcome):
        return found
    if row.mode is change.mode:
        return NO_EFFECT
    if row.mode_offset != change.replaces_offset:
        return conflict(
            f"the mode of {partition} was set to {row.mode.name} at metadata offset "
            f"{row.mode_offset}, not at {change.replaces_offset}: read it again, then decide"
        )
    if change.mode is Mode.DELEGATED:
        forget_expiry(draft, partition)  # from now on the broker runs the retention
    draft.put_partition(
        partition,
        row._replace(
            mode=change.mode, mode_offset=draft.offset, claim_voided=row.claim is not None
        ),
    )
    return ACCEPTED


def _mode_is_moving(
    draft: Draft, change: PartitionModeChange, row: PartitionRow | None
) -> Outcome | None:
    """Return CONFLICT for a change to or from DELEGATED while a move may still go back: Kafka's
    metadata topic would lack the partition, or keep one that its brokers no longer tier.
    """
    before = None if row is None else row.mode
    migration = find_migration(draft.rows)
    if migration.phase not in MOVING_PHASES or before is change.mode:
        return None
    if Mode.DELEGATED not in (before, change.mode):
        return None
    return conflict(
        f"the move from Kafka's metadata topic is in phase {migration.phase.name}: no partition "
        "becomes or ceases to be delegated before it is DONE"
    )


def apply_claim_reset(draft: Draft, reset: ClaimReset) -> Outcome:
    """Apply an admin's reset of a claim; see `ClaimReset`."""
    row = find_live(draft, reset.partition)
    if isinstance(row, Outcome):
        return row
    if reset.cut_at is not None and not 0 <= reset.cut_at <= OFFSET_MAX:
        return invalid(f"a reset allows a cut at an offset from 0 to {OFFSET_MAX}")
    if row.claim is None or row.claim.token != reset.replaces_offset:
        token = None if row.claim is None else row.claim.token
        return conflict(
            f"the last claim of {reset.partition} has token {token}, not {reset.replaces_offset}: "
            "read it again, then decide"
        )
    cut_at = UNKNOWN_OFFSET if reset.cut_at is None else reset.cut_at
    after = row._replace(claim_voided=True, reset_stands=True, reset_cut_at=cut_at)
    if after == row:
        return NO_EFFECT
    draft.put_partition(reset.partition, after)
    return ACCEPTED
