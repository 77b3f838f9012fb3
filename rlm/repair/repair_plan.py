"""Decides whether a damaged segment is copied again, retired, or left. Pure.

    damaged and serving            -> copied from a whole source under a new id, read back,
                                      COPY_SEGMENT_FINISHED; then it serves nothing any more
    damaged and serving nothing    -> retired, once all segments in its place were found whole
    ... and none is in its place   -> left: it may be the last copy of some records
    ... partly outside the lineage -> left: the same, and retention's brake protects those
    nothing may be deleted now     -> left; the damage is reported in any case

A crash between two steps leaves one of these states, and any later node continues from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlmm.lineage import within_lineage
from rlmm.partition_state import Mode, PartitionState
from rlmm.rows.queries import ServedSegment
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata


class RepairAction(StrEnum):
    """The right action for a damaged segment."""

    COPY_ANEW = "copy_anew"
    RETIRE = "retire"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """The facts about a damaged segment. `served`: the segments that serve the readable offsets of
    its range. `held_back`: why no data of the topic may be deleted now; `copying_paused`: why no
    copies are made; `not_claimed`: why a different node must repair it; None: no objection.
    """

    row: RemoteLogSegmentMetadata
    state: PartitionState
    served: Sequence[ServedSegment]
    held_back: str | None
    copying_paused: str | None
    not_claimed: str | None


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """The decision, with its reason in `text`. `not_now`: why the action must wait. `in_its_place`:
    the segments, at least one, that must be found whole before a RETIRE.
    """

    action: RepairAction
    text: str
    not_now: str | None = None
    in_its_place: tuple[RemoteLogSegmentMetadata, ...] = ()


def plan_repair(facts: RepairFacts) -> RepairDecision:
    """The decision for a damaged segment in COPY_SEGMENT_FINISHED."""
    row, state = facts.row, facts.state
    if state.delete_state is not None:
        return RepairDecision(RepairAction.LEAVE, "the partition's data is being deleted")
    if state.mode is not Mode.SIDECAR:
        return RepairDecision(
            RepairAction.LEAVE,
            f"the partition's mode is {state.mode.name.lower()}: nodes do not copy its segments",
        )
    if row.end_offset < state.log_start_offset:
        return RepairDecision(
            RepairAction.LEAVE, "it lies below the log start: retention deletes it"
        )
    not_now = _not_now(facts)
    mine = [span for span, by in facts.served if by.segment_id == row.segment_id]
    if not mine:
        return _retired(facts, not_now)
    if not _is_in_lineage(facts):
        return RepairDecision(
            RepairAction.LEAVE,
            "its end lies outside the lineage, where no record is copied any more: the offsets "
            "that it serves have to come from a copy of the broker's own segments",
        )
    return RepairDecision(
        RepairAction.COPY_ANEW,
        "it serves " + ", ".join(f"{span.first_offset} to {span.last_offset}" for span in mine),
        not_now,
    )


def _retired(facts: RepairFacts, not_now: str | None) -> RepairDecision:
    """The decision for a segment that serves nothing. Retire it only if other segments serve its
    offsets with the same records: otherwise it may be the last copy of them. Outside the lineage
    the other segments have a different leader's records.
    """
    if not _is_in_lineage(facts):
        return RepairDecision(
            RepairAction.LEAVE,
            "a part of it lies outside the lineage of leader epochs, where readers get different "
            "records: retention deletes it",
        )
    others = {by.segment_id.id: by for _, by in facts.served}
    if not others:
        return RepairDecision(
            RepairAction.LEAVE,
            "nothing is read from it any more, and no segment serves its offsets in its place: "
            "retention deletes it",
        )
    return RepairDecision(
        RepairAction.RETIRE,
        "nothing is read from it any more: other segments serve its offsets",
        not_now,
        tuple(others.values()),
    )


def _is_in_lineage(facts: RepairFacts) -> bool:
    row, lineage = facts.row, facts.state.lineage
    return within_lineage(row.start_offset, row.end_offset, row.leader_epochs, lineage, None)


def _not_now(facts: RepairFacts) -> str | None:
    if facts.not_claimed is not None:
        return facts.not_claimed
    if facts.state.adopting:
        return "the partition's segments in the store are not recorded yet"
    if facts.held_back is not None:
        return f"nothing is deleted now: {facts.held_back}"
    return facts.copying_paused


def readable_range(row: RemoteLogSegmentMetadata, state: PartitionState) -> tuple[int, int]:
    """The first and the last readable offset of a segment's range."""
    highest = OFFSET_MAX if state.highest_copied is None else state.highest_copied[0]
    return max(row.start_offset, state.log_start_offset), min(row.end_offset, highest)


def first_known_offset(row: RemoteLogSegmentMetadata) -> int:
    """The first offset whose epoch is known, if DeleteRecords removed the records below it before
    the copy. -1: all are known.
    """
    first = row.leader_epochs[0][1]
    return first if first > row.start_offset else -1


@dataclass(frozen=True, slots=True)
class Budget:
    """The times (monotonic, s) at which the automatic mode began repairs, ascending."""

    begun_at_s: tuple[float, ...] = ()

    def may_begin(self, now_s: float, per_hour_max: int) -> bool:
        """True if a further repair is allowed within this hour."""
        return len(self._of_the_hour(now_s)) < per_hour_max

    def begun(self, now_s: float) -> Budget:
        return Budget((*self._of_the_hour(now_s), now_s))

    def _of_the_hour(self, now_s: float) -> tuple[float, ...]:
        return tuple(at_s for at_s in self.begun_at_s if now_s - at_s < 3600)
