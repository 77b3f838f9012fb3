"""Computes where a new leader goes on copying. Pure, read-only.

Kafka's algorithm is findHighestRemoteOffset and findLogStartOffset of RemoteLogManager (KIP-405).
This one differs in one thing: the lineage is the view's, merged with the new leader's checkpoint,
because local retention cuts the head of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_formats.errors import Conflict, Fenced, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claim_forecast import AskedClaim, ClaimForecast
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import Claim, LostOffsets, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class LeaderTransitionQuery:
    """The new leader's position: leader epoch, checkpoint (ending in that epoch), and log."""

    partition: TopicIdPartition
    leader_epoch: int
    checkpoint: Epochs
    local_log_start_offset: int
    log_end_offset: int

    def as_claim(self) -> AskedClaim:
        return AskedClaim(
            self.partition, self.leader_epoch, self.checkpoint, self.local_log_start_offset
        )


@dataclass(frozen=True, slots=True)
class LeaderTransitionAnswer:
    """The offset where copying goes on. `highest_copied_offset` is inclusive; it and its epoch are
    -1 if no segment is copied.

    All values are as after the new leader's claim (`rlmm.apply.claim_forecast`), except `claim`,
    the one in force now. `lineage_cut_at`: the offset where that claim would cut the lineage, None
    if it would not. Valid at `metadata_offset`.
    """

    partition: TopicIdPartition
    leader_epoch: int
    highest_copied_offset: int
    highest_copied_epoch: int
    next_offset: int
    log_start_offset: int
    lineage: Epochs
    lineage_cut_at: int | None
    lost_ranges: tuple[LostOffsets, ...]
    left_overs: tuple[RemoteLogSegmentMetadata, ...]
    claim: Claim | None
    metadata_offset: int


def answer_leader_transition(
    query: LeaderTransitionQuery,
    state: PartitionState | None,
    forecast: ClaimForecast,
    left_overs: Sequence[RemoteLogSegmentMetadata],
    metadata_offset: int,
) -> LeaderTransitionAnswer:
    """Answer from the view alone: `state` is the present state, `forecast` the effect of the new
    leader's claim. Fenced, InvalidRequest or Conflict if that claim would be refused.
    """
    check_query(query)
    after = _after(forecast)
    highest, epoch = _copied_below(after, query.log_end_offset)
    log_start = after.first_readable_offset
    if log_start < 0:
        log_start = query.local_log_start_offset  # the log start that follows a first claim
    return LeaderTransitionAnswer(
        partition=query.partition,
        leader_epoch=query.leader_epoch,
        highest_copied_offset=highest,
        highest_copied_epoch=epoch,
        next_offset=_past_lost_ranges(max(highest + 1, log_start), after.lost_ranges),
        log_start_offset=log_start,
        lineage=after.lineage,
        lineage_cut_at=forecast.cut_at,
        lost_ranges=after.lost_ranges,
        left_overs=tuple(left_overs),
        claim=state.claim if state is not None else None,
        metadata_offset=metadata_offset,
    )


def _after(forecast: ClaimForecast) -> PartitionState:
    if forecast.state is not None:
        return forecast.state
    verdict, message = forecast.outcome.verdict, forecast.outcome.message
    if verdict is Verdict.FENCED:
        raise Fenced(f"{message}; stop copying it")
    if verdict is Verdict.INVALID:
        raise InvalidRequest(message, field="leader_epoch_checkpoint")
    raise Conflict(message, reason=verdict.name)


def check_query(query: LeaderTransitionQuery) -> None:
    """Raise InvalidRequest with the field's name for values that no broker sends."""
    if query.leader_epoch < 0:
        raise InvalidRequest("must be 0 or more", field="leader_epoch")
    if not query.checkpoint or query.checkpoint[-1].epoch != query.leader_epoch:
        raise InvalidRequest(
            f"its last entry must be the leader epoch {query.leader_epoch}: send the "
            "leader-epoch-checkpoint as it is after the leadership change",
            field="leader_epoch_checkpoint",
        )
    if query.local_log_start_offset < 0:
        raise InvalidRequest("must be 0 or more", field="local_log_start_offset")
    if query.log_end_offset < query.local_log_start_offset:
        raise InvalidRequest("must not be below local_log_start_offset", field="log_end_offset")


def _copied_below(state: PartitionState, log_end_offset: int) -> tuple[int, int]:
    """(offset, epoch) of the highest copied record in the new leader's log, or (-1, -1)."""
    if state.highest_copied is None:
        return -1, -1
    highest, epoch = state.highest_copied
    if highest < log_end_offset:
        return highest, epoch
    at = epoch_for_offset(state.lineage, log_end_offset - 1)
    return (-1, -1) if at is None else (log_end_offset - 1, at)


def _past_lost_ranges(offset: int, lost_ranges: Sequence[LostOffsets]) -> int:
    for lost in sorted(lost_ranges, key=lambda each: each.start):
        if lost.start <= offset <= lost.end:
            offset = lost.end + 1
    return offset
