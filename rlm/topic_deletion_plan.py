"""The next step in deleting a partition whose topic is deleted: whose, when, which. Pure.

    MARKED -(grace)-> STARTED
      -> each row DELETE_SEGMENT_STARTED -> its objects -> DELETE_SEGMENT_FINISHED
      -> no row left -> FINISHED

Every step follows from the metadata alone, so any node goes on where another one stopped. Two that
act at once do no harm; the node that claimed the partition last goes first, to spare the others the
work.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.partition_state import PartitionState
from rlmm.segment import PartitionDeleteState


@dataclass(frozen=True, slots=True)
class NotDeleted:
    """The partition is not marked."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not before `until_ms` (since the epoch), or, with -1, not while `why` is so."""

    until_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Start:
    """Propose DELETE_PARTITION_STARTED for the mark at metadata offset `replaces_offset`."""

    replaces_offset: int


@dataclass(frozen=True, slots=True)
class RemoveSegments:
    """Mark rows as deleted and remove their objects."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Propose DELETE_PARTITION_FINISHED."""


DeletionStep = NotDeleted | Wait | Start | RemoveSegments | Finish


def plan_deletion(
    state: PartitionState,
    *,
    has_segments: bool,
    node_id: int,
    now_ms: int,
    settle_ms: int,
    held_back: str | None,
) -> DeletionStep:
    """What this node does next for the partition.

    `has_segments`: a row of any state is left. `settle_ms`: how long the others leave it to the
    node of the last claim. `held_back`: why nothing may be deleted now, None if it may.
    """
    if state.delete_state is None:
        return NotDeleted()
    from_ms = acts_from_ms(state, node_id, settle_ms)
    if now_ms < state.delete_due_ms:
        return Wait(from_ms, "the grace of the mark is not over")
    if now_ms < from_ms:
        return Wait(from_ms, "left to the node that claimed the partition last")
    if held_back is not None:
        return Wait(-1, held_back)
    if state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED:
        return Start(state.delete_offset)
    return RemoveSegments() if has_segments else Finish()


def acts_from_ms(state: PartitionState, node_id: int, settle_ms: int) -> int:
    """From when a node takes part: at the end of the grace, or `settle_ms` later."""
    claim = state.claim or state.voided_claim
    first = claim is not None and claim.incarnation.node_id == node_id
    return state.delete_due_ms + (0 if first else settle_ms)
