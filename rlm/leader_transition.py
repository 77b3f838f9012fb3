"""What a new leader asks: where may it go on copying? Pure, read-only (design 6.6).

Kafka's own algorithm is findHighestRemoteOffset and findLogStartOffset of RemoteLogManager
(KIP-405); ours differs in one thing: the lineage is the view's, merged with what the asker knows,
because the asker's checkpoint loses its head to local retention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_formats.errors import Fenced, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs, end_offset_for
from rlmm.lineage import merge
from rlmm.partition_state import Claim, LostOffsets, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata, TopicIdPartition


@dataclass(frozen=True, slots=True)
class LeaderTransitionQuery:
    """The asker's position: its leader epoch, its checkpoint (ending in that epoch), its log."""

    partition: TopicIdPartition
    leader_epoch: int
    checkpoint: Epochs
    local_log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderTransitionAnswer:
    """Where copying goes on. `highest_copied_offset` is inclusive; -1, -1 when nothing is copied.

    `lineage` is what the merged one would be after this asker's claim, `lineage_cut_at` where the
    present one would be cut, None if nowhere. True at `metadata_offset`.
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


HighestOffsetForEpoch = Callable[[int], int | None]


def answer_leader_transition(
    query: LeaderTransitionQuery,
    state: PartitionState | None,
    highest_offset_for_epoch: HighestOffsetForEpoch,
    left_overs: Sequence[RemoteLogSegmentMetadata],
    metadata_offset: int,
) -> LeaderTransitionAnswer:
    """Answer from the view alone. Fenced when a higher leader epoch is already claimed."""
    check_query(query)
    lineage: Epochs = state.lineage if state is not None else ()
    claim = state.claim if state is not None else None
    if claim is not None and claim.leader_epoch > query.leader_epoch:
        raise Fenced(
            f"leader epoch {query.leader_epoch} of {query.partition} is over: node "
            f"{claim.incarnation.node_id} claimed it at epoch {claim.leader_epoch}; stop copying it"
        )
    claimed_epoch = lineage[-1].epoch if lineage else -1
    merged = merge(
        lineage,
        query.checkpoint,
        leader_epoch=query.leader_epoch,
        higher_epoch=query.leader_epoch > claimed_epoch,
    )
    highest, epoch = highest_copied(merged.epochs, query.log_end_offset, highest_offset_for_epoch)
    log_start = _log_start(state, query.local_log_start_offset, merged.cut_at)
    lost = state.lost_ranges if state is not None else ()
    return LeaderTransitionAnswer(
        partition=query.partition,
        leader_epoch=query.leader_epoch,
        highest_copied_offset=highest,
        highest_copied_epoch=epoch,
        next_offset=_past_lost_ranges(max(highest + 1, log_start), lost),
        log_start_offset=log_start,
        lineage=merged.epochs,
        lineage_cut_at=merged.cut_at,
        lost_ranges=lost,
        left_overs=tuple(left_overs),
        claim=claim,
        metadata_offset=metadata_offset,
    )


def check_query(query: LeaderTransitionQuery) -> None:
    """InvalidRequest with the field's name for anything that no broker could have sent."""
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


def highest_copied(
    lineage: Epochs, log_end_offset: int, highest_offset_for_epoch: HighestOffsetForEpoch
) -> tuple[int, int]:
    """(offset, epoch) of the highest copied record in the lineage, or (-1, -1).

    Walks the epochs downwards; at the first with a recorded highest h the answer is h, or the last
    offset before that epoch's end when a later leader cut it (unclean election).
    """
    for entry in reversed(lineage):
        recorded = highest_offset_for_epoch(entry.epoch)
        if recorded is None:
            continue
        epoch, end = end_offset_for(lineage, entry.epoch, log_end_offset)
        if end <= recorded:
            return end - 1, epoch
        return recorded, entry.epoch
    return -1, -1


def _log_start(state: PartitionState | None, local: int, cut_at: int | None) -> int:
    if state is None or state.log_start_offset < 0:
        return local
    if cut_at is not None:
        return min(state.log_start_offset, cut_at)
    return state.log_start_offset


def _past_lost_ranges(offset: int, lost_ranges: Sequence[LostOffsets]) -> int:
    for lost in sorted(lost_ranges, key=lambda each: each.start):
        if lost.start <= offset <= lost.end:
            offset = lost.end + 1
    return offset
