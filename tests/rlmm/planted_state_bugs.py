"""Rules of apply, each taken away alone, for the simulation to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm import lineage
from rlmm.apply import apply as rlmm_apply
from rlmm.apply import claims as apply_claims
from rlmm.apply import offsets as apply_offsets
from rlmm.apply import partition_delete as apply_partition_delete
from rlmm.apply import purge as apply_purge
from rlmm.apply import segments as apply_segments
from rlmm.apply.outcome import Draft, without_token
from rlmm.lineage import MergedLineage, merge
from rlmm.partition_state import Claim
from rlmm.records.control_records import PartitionClaim
from rlmm.rows import coverage, keys, queries
from rlmm.rows.coverage import EpochRange
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import read_partition_row
from rlmm.rows.rows import OverlayRows, RowReader, prefix_end
from rlmm.segment import (
    OFFSET_MAX,
    SEGMENT_TRANSITIONS,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from tests.rlmm.simulated_nodes import Simulation

Plant = Callable[[pytest.MonkeyPatch], None]


def nothing(*_args: Any, **_named: Any) -> None:
    """In place of a check: all is well."""


def no_token_needed(patch: pytest.MonkeyPatch) -> None:
    def only_a_claim(row: PartitionRow, token: int, what: str) -> Any:
        return without_token(row, token, what) if row.standing_claim is None else None

    for module in (apply_segments, apply_offsets):
        patch.setattr(module, "without_token", only_a_claim)


def a_voided_claim_stands(patch: pytest.MonkeyPatch) -> None:
    def last_claim(row: PartitionRow) -> Claim | None:
        return row.claim

    patch.setattr(PartitionRow, "standing_claim", property(last_claim))


def cuts_go_unnoticed(patch: pytest.MonkeyPatch) -> None:
    def uncut(*args: Any, **named: Any) -> MergedLineage:
        return MergedLineage(merge(*args, **named).epochs, None)

    patch.setattr(apply_claims, "merge", uncut)


def the_broker_owns_the_lineage(patch: pytest.MonkeyPatch) -> None:
    def replaced(current: Any, checkpoint: Any, **named: Any) -> MergedLineage:
        merged = merge(current, checkpoint, **named)
        return MergedLineage(checkpoint, merged.cut_at)

    patch.setattr(apply_claims, "merge", replaced)


def a_late_head_is_never_a_cut(patch: pytest.MonkeyPatch) -> None:
    def above_the_old_head(before: Epochs, after: Epochs) -> int | None:
        borders = sorted(entry.start_offset for entry in (*before, *after))
        for offset in borders:
            if offset >= before[0].start_offset and (
                epoch_for_offset(before, offset) != epoch_for_offset(after, offset)
            ):
                return offset
        return None

    patch.setattr(lineage, "_first_difference", above_the_old_head)


def a_mode_change_settles_nothing(patch: pytest.MonkeyPatch) -> None:
    def unsettled(_draft: Draft, _of: TopicIdPartition, row: PartitionRow, _now: Any) -> Any:
        return row

    patch.setattr(apply_claims, "settle_after_mode_change", unsettled)


def gaps_are_copied_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_segments, "next_offset", lambda *_: OFFSET_MAX)


def nothing_is_refilled(patch: pytest.MonkeyPatch) -> None:
    def all_served(*_args: Any) -> list[tuple[int, int]]:
        return []

    patch.setattr(coverage, "_refill", all_served)


def sizes_never_fall(patch: pytest.MonkeyPatch) -> None:
    count = Draft.count

    def upwards(draft: Draft, partition: Any, row: Any, **changes: int) -> None:
        size_bytes = max(changes.pop("size_bytes", 0), 0)
        count(draft, partition, row, size_bytes=size_bytes, **changes)

    patch.setattr(Draft, "count", upwards)


def highest_copied_is_cleared(patch: pytest.MonkeyPatch) -> None:
    uncover = coverage.uncover

    def forgetting(rows: OverlayRows, segment: RemoteLogSegmentMetadata) -> list[EpochRange]:
        for epoch, _ in segment.leader_epochs:
            rows.delete(keys.highest_copied_key(segment.segment_id.partition, epoch))
        return uncover(rows, segment)

    patch.setattr(apply_segments, "uncover", forgetting)


def finished_before_delete_started(patch: pytest.MonkeyPatch) -> None:
    """DELETE_SEGMENT_FINISHED follows anything, and a node sends it for a failed copy at once."""
    every = frozenset(SegmentState)
    patch.setattr(apply_segments, "SEGMENT_TRANSITIONS", dict.fromkeys(SEGMENT_TRANSITIONS, every))

    def impatient(simulation: Simulation, number: int) -> None:
        simulation.send(simulation.world.a_delete_finish(number))

    patch.setattr(Simulation, "after_lost_answer", impatient)


def a_partition_goes_before_its_segments(patch: pytest.MonkeyPatch) -> None:
    finish = apply_partition_delete._finish

    def careless(draft: Draft, partition: TopicIdPartition, row: PartitionRow) -> Any:
        none_left = row._replace(copy_started=0, copy_finished=0, delete_started=0)
        return finish(draft, partition, none_left)

    patch.setattr(apply_partition_delete, "_finish", careless)


def tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    def buried(draft: Draft, key: bytes, value: bytes) -> None:
        draft.rows.put(key, value)
        draft.rows.put(keys.purge_key(0, key), b"")

    patch.setattr(apply_segments, "bury", buried)


def look_ups_ignore_the_lineage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queries, "epoch_bounds", lambda *_: (0, OFFSET_MAX))


def a_clock_is_read(patch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**9))
    record_time_with = apply_purge.record_time_with

    def ticking(rows: RowReader, timestamp_ms: int) -> int:
        return record_time_with(rows, timestamp_ms) + next(count) % 2

    patch.setattr(rlmm_apply, "record_time_with", ticking)


def refused_records_leave_a_trace(patch: pytest.MonkeyPatch) -> None:
    """What the rules wrote before they said no is kept."""
    patch.setattr(OverlayRows, "take_back", lambda _: None)


def objects_go_before_the_record(patch: pytest.MonkeyPatch) -> None:
    def eager(simulation: Simulation, number: int) -> None:
        simulation.objects.discard(number)

    patch.setattr(Simulation, "before_delete", eager)


def a_lost_answer_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    def clean_up(simulation: Simulation, number: int) -> None:
        simulation.objects.discard(number)

    patch.setattr(Simulation, "after_lost_answer", clean_up)


def a_copy_may_end_behind_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """Its last record is of another epoch in the lineage."""
    within = lineage.within_lineage

    def one_more(start: int, end: int, *rest: Any) -> bool:
        return within(start, end, *rest) or (start < end and within(start, end - 1, *rest))

    patch.setattr(apply_segments, "within_lineage", one_more)


def without(module: object, name: str) -> Plant:
    """The check `name` finds nothing wrong."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, name, nothing)

    return plant


def always(module: object, name: str, answer: object) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, name, lambda *_args, **_named: answer)

    return plant


def the_next_mark_will_do(patch: pytest.MonkeyPatch) -> None:
    """A step is judged by the state alone, whichever mark or undo it was meant to follow."""
    judge = apply_partition_delete.apply_partition_delete

    def careless(draft: Draft, step: RemotePartitionDeleteMetadata) -> Any:
        row = read_partition_row(draft.rows, step.partition)
        if row is not None:
            step = replace(step, replaces_offset=row.delete_offset)
        return judge(draft, step)

    patch.setitem(rlmm_apply._RULES, RemotePartitionDeleteMetadata, careless)


def a_reset_allows_later_cuts(patch: pytest.MonkeyPatch) -> None:
    accept = apply_claims._accept

    def keep_its_cut(
        draft: Draft, claim: PartitionClaim, row: PartitionRow, *rest: Any, **named: Any
    ) -> None:
        accept(draft, claim, row, *rest, **named)
        after = read_partition_row(draft.rows, claim.partition)
        assert after is not None
        draft.put_partition(claim.partition, after._replace(reset_cut_at=row.reset_cut_at))

    patch.setattr(apply_claims, "_accept", keep_its_cut)


def highest_copied_outlives_its_partition(patch: pytest.MonkeyPatch) -> None:
    finish = apply_partition_delete._finish

    def put_back(draft: Draft, partition: TopicIdPartition, row: PartitionRow) -> Any:
        prefix = keys.highest_copied_prefix(partition)
        kept = list(draft.rows.scan(prefix, prefix_end(prefix)))
        outcome = finish(draft, partition, row)
        for key, value in kept:
            draft.rows.put(key, value)
        return outcome

    patch.setattr(apply_partition_delete, "_finish", put_back)


PLANTED: dict[str, tuple[Plant, str]] = {
    "no token is needed": (no_token_needed, "fenced_has_no_effect"),
    "an older epoch may claim": (without(apply_claims, "_fenced"), "fenced_has_no_effect"),
    "a voided claim stands": (a_voided_claim_stands, "fenced_has_no_effect"),
    "a large cut needs nobody": (without(apply_claims, "_suspect"), "suspect"),
    "a reset allows later cuts, too": (a_reset_allows_later_cuts, "suspect"),
    "highest copied outlives its partition": (
        highest_copied_outlives_its_partition,
        "a partition that went leaves rows",
    ),
    "a cut goes unnoticed": (cuts_go_unnoticed, "offsets_never_retreat|no_hole|suspect"),
    "the broker owns the lineage": (the_broker_owns_the_lineage, "no_hole|suspect|lineage"),
    "holes of a cut are not recorded": (without(apply_claims, "record_holes"), "no_hole"),
    "holes of delegated mode are not recorded": (a_mode_change_settles_nothing, "no_hole"),
    "a late head is never a cut": (a_late_head_is_never_a_cut, "no_hole"),
    "a copy may lie outside the lineage": (
        always(apply_segments, "within_lineage", answer=True),
        "no_bad_byte",
    ),
    "a copy may end one record outside the lineage": (
        a_copy_may_end_behind_its_epoch,
        "no_bad_byte",
    ),
    "a copy may leave a gap": (gaps_are_copied_over, "no_hole"),
    "a copied lost range stays": (without(apply_segments, "shrink_lost_ranges"), "no_hole"),
    "a freed range is not refilled": (nothing_is_refilled, "coverage"),
    "a segment in use may go": (without(apply_segments, "_needed"), "no_hole"),
    "no expected state": (without(apply_segments, "_not_expected"), "delete_order"),
    "totals keep deleted sizes": (sizes_never_fall, "totals"),
    "a delete clears highest copied": (
        highest_copied_is_cleared,
        "next offset|offsets_never_retreat",
    ),
    "DELETE_FINISHED before DELETE_STARTED": (finished_before_delete_started, "delete_order"),
    "a partition goes before its segments": (a_partition_goes_before_its_segments, "delete_order"),
    "a step follows any mark": (the_next_mark_will_do, "grace: another mark"),
    "a grace counts for nothing": (without(apply_partition_delete, "_in_grace"), "grace: not over"),
    "tombstones count for nothing": (
        always(apply_segments, "_is_tombstone", answer=False),
        "tombstones",
    ),
    "tombstones go at once": (tombstones_go_at_once, "tombstones"),
    "look-ups ignore the lineage": (look_ups_ignore_the_lineage, "no_bad_byte|coverage"),
    "apply reads a clock": (a_clock_is_read, "same_offset_same_state"),
    "a refused record leaves a trace": (
        refused_records_leave_a_trace,
        "fenced_has_no_effect|same_offset",
    ),
    "objects go before DELETE_STARTED": (objects_go_before_the_record, "finished_is_readable"),
    "a lost answer counts as a failure": (a_lost_answer_is_a_failure, "finished_is_readable"),
}
