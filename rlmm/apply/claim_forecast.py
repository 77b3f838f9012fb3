"""Forecasts of claims: the rules of `rlmm/apply/claims.py`, on a draft that is discarded."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claims import judge_claim
from rlmm.apply.outcome import Draft, Outcome, Verdict
from rlmm.partition_state import CLAIMABLE_MODES, Claim, Mode, PartitionState
from rlmm.records.control_records import PartitionClaim
from rlmm.rows import queries
from rlmm.rows.nodes import find_node
from rlmm.rows.reads import read_partition_row
from rlmm.rows.rows import OverlayRows, RowReader
from rlmm.segment import OFFSET_MAX, Incarnation

_SOMEBODY = Incarnation(2**31 - 1, Uuid(bytes(16)), 0)
"""A claimant with a node id that no node registers."""


@dataclass(frozen=True, slots=True)
class AskedClaim:
    """The claim to forecast; fields as in `PartitionClaim`.

    `incarnation` None: any node that may claim at that epoch. `after_reset`: as if an admin had
    just reset the claim (`ClaimReset`), allowing any cut.
    """

    partition: TopicIdPartition
    leader_epoch: int
    leader_epochs: Epochs
    local_log_start_offset: int
    incarnation: Incarnation | None = None
    after_reset: bool = False


@dataclass(frozen=True, slots=True)
class ClaimForecast:
    """A forecast. `state`: the partition after the claim (ignore its `claim`), None if the claim is
    refused. `cut_at` as in `MergedLineage`.
    """

    outcome: Outcome
    state: PartitionState | None
    cut_at: int | None


def forecast_claim(rows: RowReader, asked: AskedClaim) -> ClaimForecast:
    """Judge a claim without writing it; READ_ONLY and PAUSED partitions are judged as SIDECAR."""
    partition = asked.partition
    draft = Draft(OverlayRows(rows), OFFSET_MAX, 0)
    row = read_partition_row(rows, partition)
    if row is not None and row.mode not in CLAIMABLE_MODES:
        row = row._replace(mode=Mode.SIDECAR, mode_offset=OFFSET_MAX)
        draft.put_partition(partition, row)
    if row is not None and row.claim is not None and asked.after_reset:
        row = row._replace(claim_voided=True, reset_stands=True, reset_cut_at=0)
        draft.put_partition(partition, row)
    last = None if row is None else row.claim
    claim = PartitionClaim(
        partition=partition,
        mode=Mode.SIDECAR if row is None else row.mode,
        leader_epoch=asked.leader_epoch,
        incarnation=asked.incarnation or _whoever_may(rows, last, asked.leader_epoch),
        claim_number=0 if last is None else last.claim_number + 1,
        leader_epochs=asked.leader_epochs,
        local_log_start_offset=asked.local_log_start_offset,
    )
    outcome, merged = judge_claim(draft, claim)
    if outcome.verdict is not Verdict.ACCEPTED:
        return ClaimForecast(outcome, None, None)
    assert merged is not None, "an accepted claim has a lineage"
    return ClaimForecast(outcome, queries.partition_state(draft.rows, partition), merged.cut_at)


def _whoever_may(rows: RowReader, last: Claim | None, leader_epoch: int) -> Incarnation:
    """A claimant that may claim: at a new epoch any node; at the claimed epoch the claimant, or the
    directory that has taken over its node id.
    """
    if last is None or leader_epoch > last.leader_epoch:
        return _SOMEBODY
    node = find_node(rows, last.incarnation.node_id)
    if node is None or node.directory_id == last.incarnation.directory_id:
        return last.incarnation
    return Incarnation(node.node_id, node.directory_id, node.boot_counter)
