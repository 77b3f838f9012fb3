"""The next step in deleting a marked partition, and the node that takes it. Pure.

    MARKED -(grace)-> STARTED
      -> each row DELETE_SEGMENT_STARTED -> its objects -> DELETE_SEGMENT_FINISHED
      -> no row left -> FINISHED

Every step follows from the metadata alone, so any node can continue where another one stopped. Two
nodes at once do no harm; the node of the last claim goes first, to spare the others the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.partition_state import PartitionState, grace_ms_of
from rlmm.segment import PartitionDeleteState


@dataclass(frozen=True, slots=True)
class NotDeleted:
    """The partition is not marked."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait `for_ms`, or, if that is -1, for as long as the reason `why` applies."""

    for_ms: int
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
    passed_ms: int,
    settle_ms: int,
    held_back: str | None,
) -> DeletionStep:
    """This node's next step for the partition.

    `has_segments`: a row of any state is left. `passed_ms`: the time measured since the mark was
    applied, by this node or by all together, without a wall clock. `settle_ms`: the time for which
    the other nodes leave the step to the node of the last claim. `held_back`: why nothing may be
    deleted now.
    """
    if state.delete_state is None:
        return NotDeleted()
    marked = state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED
    grace_ms = grace_ms_of(state) if marked else 0
    from_ms = grace_ms + (0 if _goes_first(state, node_id) else settle_ms)
    if passed_ms < grace_ms:
        return Wait(from_ms - passed_ms, "the grace of the mark is not over")
    if passed_ms < from_ms:
        return Wait(from_ms - passed_ms, "left to the node that claimed the partition last")
    if held_back is not None:
        return Wait(-1, held_back)
    if marked:
        return Start(state.delete_offset)
    return RemoveSegments() if has_segments else Finish()


def _goes_first(state: PartitionState, node_id: int) -> bool:
    """True for the node of the last claim; the other nodes follow `settle_ms` later."""
    claim = state.last_claim
    return claim is not None and claim.incarnation.node_id == node_id
