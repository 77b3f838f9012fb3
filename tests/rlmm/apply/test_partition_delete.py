from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.apply.outcome import Verdict
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS, Totals
from rlmm.records.control_records import PartitionDeleteUndo
from rlmm.rows import queries
from rlmm.rows.keys import RowKind
from rlmm.rows.reads import read_totals
from rlmm.segment import PartitionDeleteState, SegmentState
from tests.rlmm.state_world import NODE_2, ORDERS, World

MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED
HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    world = World()
    world.leads((4, 100))
    world.copy(1, 100, 199, [(4, 100)])
    world.accept(world.a_lost_range(200, 249))
    return world


@pytest.mark.parametrize(
    ("steps", "step", "verdict"),
    [
        ([], MARKED, Verdict.ACCEPTED),
        ([], STARTED, Verdict.CONFLICT),
        ([], FINISHED, Verdict.CONFLICT),
        ([MARKED], MARKED, Verdict.NO_EFFECT),
        ([MARKED], STARTED, Verdict.ACCEPTED),
        ([MARKED], FINISHED, Verdict.CONFLICT),
        ([MARKED, STARTED], MARKED, Verdict.CONFLICT),
        ([MARKED, STARTED], STARTED, Verdict.NO_EFFECT),
        ([MARKED, STARTED], FINISHED, Verdict.CONFLICT),  # a segment is left
    ],
)
def test_steps(
    world: World, steps: list[PartitionDeleteState], step: PartitionDeleteState, verdict: Verdict
) -> None:
    world.delete(*steps)
    changed = world.changed_by(world.a_step(step))
    assert changed is (verdict is Verdict.ACCEPTED)
    assert world.verdict(world.a_step(step)) is (Verdict.NO_EFFECT if changed else verdict)


def empty(world: World) -> None:
    world.delete(MARKED, STARTED)
    world.accept(replace(world.a_delete(1), token=-1), world.a_delete_finish(1))


def test_a_finished_deletion_leaves_tombstones_only(world: World) -> None:
    empty(world)
    world.accept(world.a_step(FINISHED))
    kinds = {key[0] for key, _ in world.rows.items()}
    assert kinds == {
        RowKind.RECORD_TIME,
        RowKind.MEASURED_TIME,
        RowKind.TOTALS,
        RowKind.SEGMENT_TOMBSTONE,
        RowKind.PARTITION_TOMBSTONE,
        RowKind.PURGE,
    }
    assert queries.partition_state(world.rows, ORDERS) is None
    assert list(queries.partitions(world.rows)) == []
    assert read_totals(world.rows) == Totals()
    assert world.verdict(world.a_step(FINISHED)) is Verdict.NO_EFFECT
    assert world.verdict(world.a_step(MARKED)) is Verdict.GONE
    assert world.verdict(world.a_claim([(5, 300)], node=NODE_2)) is Verdict.GONE


def test_a_segment_that_is_going_is_one_that_is_left(world: World) -> None:
    world.delete(MARKED, STARTED)
    world.accept(replace(world.a_delete(1), token=-1))
    assert world.verdict(world.a_step(FINISHED)) is Verdict.CONFLICT


def test_look_ups_go_on_until_segments_go(world: World) -> None:
    world.accept(world.a_step(MARKED))
    assert world.serving(4, 150) == 1
    world.accept(world.a_step(STARTED))
    assert world.serving(4, 150) == 1
    world.accept(replace(world.a_delete(1), token=-1))
    assert world.serving(4, 150) is None


def test_what_is_not_known_cannot_be_deleted() -> None:
    world = World()
    for step in PartitionDeleteState:
        assert world.verdict(world.a_step(step)) is Verdict.CONFLICT


def test_a_mark_is_undone_by_its_offset(world: World) -> None:
    token = world.token
    world.accept(world.a_step(MARKED))
    marked = world.state.delete_offset
    assert marked == world.offset
    assert world.state.delete_marked_at_ms == world.time_ms
    assert world.verdict(PartitionDeleteUndo(ORDERS, marked + 1)) is Verdict.CONFLICT
    world.accept(PartitionDeleteUndo(ORDERS, marked))
    state = world.state
    assert (state.delete_state, state.delete_marked_at_ms, state.delete_grace_ms) == (None, -1, -1)
    assert state.delete_offset == world.offset, "what the next mark has to name"
    assert state.claim is not None
    assert state.claim.token == token, "the claim stands as before"
    world.accept(world.an_add(2, 250, 299, [(4, 250)]))
    assert world.verdict(PartitionDeleteUndo(ORDERS, marked)) is Verdict.NO_EFFECT


def test_an_undo_does_not_hit_a_later_mark(world: World) -> None:
    world.accept(world.a_step(MARKED))
    undo = PartitionDeleteUndo(ORDERS, world.offset)
    world.accept(undo)
    world.accept(world.a_step(MARKED))
    assert world.verdict(undo) is Verdict.CONFLICT


def test_a_late_start_does_not_follow_another_mark(world: World) -> None:
    """Its proposer heard no outcome; meanwhile the mark was undone, and set anew with a grace."""
    world.delete(MARKED)
    late = world.a_step(STARTED)
    world.accept(PartitionDeleteUndo(ORDERS, world.offset))
    assert world.verdict(late) is Verdict.CONFLICT, "nothing is marked"
    world.accept(world.a_step(MARKED, grace_ms=HOUR_MS))
    assert not world.changed_by(replace(late, seen_ms=HOUR_MS))
    assert world.verdict(world.a_step(STARTED, seen_ms=HOUR_MS)) is Verdict.ACCEPTED


def test_a_late_mark_does_not_follow_an_undo(world: World) -> None:
    mark = world.a_step(MARKED)
    world.accept(mark, PartitionDeleteUndo(ORDERS, world.offset + 1))
    told = world.put(mark)
    assert told.verdict is Verdict.CONFLICT
    assert "had its last mark undone at metadata offset" in told.message
    assert world.verdict(world.a_step(MARKED)) is Verdict.ACCEPTED


def test_a_start_that_names_no_mark_changes_nothing(world: World) -> None:
    world.delete(MARKED)
    assert world.verdict(replace(world.a_step(STARTED), replaces_offset=-1)) is Verdict.CONFLICT


@pytest.mark.parametrize(
    ("grace_ms", "lasts_ms"), [(0, 0), (HOUR_MS, HOUR_MS), (-1, DELETE_GRACE_DEFAULT_MS)]
)
def test_nothing_starts_within_the_grace(world: World, grace_ms: int, lasts_ms: int) -> None:
    world.accept(world.a_step(MARKED, grace_ms=grace_ms))
    marked_ms = world.time_ms
    assert world.state.delete_due_ms == marked_ms + lasts_ms
    if lasts_ms:
        for seen_ms in (-1, 0, lasts_ms - 1):
            assert world.verdict(world.a_step(STARTED, seen_ms=seen_ms)) is Verdict.CONFLICT
    assert world.verdict(world.a_step(STARTED, seen_ms=lasts_ms)) is Verdict.ACCEPTED


def test_what_all_nodes_measured_ends_a_grace_where_no_process_lived_that_long(
    world: World,
) -> None:
    world.time_passes(HOUR_MS)
    world.accept(world.a_step(MARKED, grace_ms=HOUR_MS))
    world.time_passes(HOUR_MS)
    assert world.verdict(world.a_step(STARTED)) is Verdict.CONFLICT, "the first may be from before"
    world.time_passes(TIME_STEP_MS_MAX - 1)
    assert world.verdict(world.a_step(STARTED)) is Verdict.CONFLICT
    world.time_passes(1)
    assert world.verdict(world.a_step(STARTED)) is Verdict.ACCEPTED


@pytest.mark.parametrize("quiet_ms", [0, 3 * HOUR_MS, 14 * 24 * HOUR_MS])
def test_neither_quiet_nor_refused_records_nor_a_leap_of_a_clock_shorten_a_grace(
    world: World, quiet_ms: int
) -> None:
    world.time_ms += quiet_ms
    world.accept(world.a_step(MARKED, grace_ms=HOUR_MS))
    assert world.state.delete_marked_at_ms == world.time_ms, "its own batch's time"
    for leap_ms in (0, 1_000 * HOUR_MS, HOUR_MS, HOUR_MS, -(2_000 * HOUR_MS)):
        world.time_ms += leap_ms
        assert world.verdict(world.a_step(STARTED)) is Verdict.CONFLICT


def test_a_clock_that_was_a_year_ahead_does_not_freeze_a_grace(world: World) -> None:
    start_ms = world.time_ms
    for _ in range(20):
        world.time_ms = start_ms + 365 * 24 * HOUR_MS
        world.put(world.a_step(STARTED))
    world.time_ms = start_ms
    world.accept(world.a_step(MARKED, grace_ms=HOUR_MS))
    assert world.verdict(world.a_step(STARTED, seen_ms=HOUR_MS)) is Verdict.ACCEPTED


def test_another_grace_needs_an_undo_first(world: World) -> None:
    world.accept(world.a_step(MARKED, grace_ms=HOUR_MS))
    assert world.verdict(world.a_step(MARKED, grace_ms=HOUR_MS)) is Verdict.NO_EFFECT
    assert world.verdict(world.a_step(MARKED, grace_ms=0)) is Verdict.CONFLICT
    assert world.state.delete_grace_ms == HOUR_MS


def test_what_has_started_is_not_undone(world: World) -> None:
    world.accept(world.a_step(MARKED))
    undo = PartitionDeleteUndo(ORDERS, world.offset)
    world.accept(world.a_step(STARTED))
    assert world.verdict(undo) is Verdict.GONE
    assert world.state.claim is None


def test_an_unknown_partition_has_nothing_to_undo() -> None:
    world = World()
    assert world.verdict(PartitionDeleteUndo(ORDERS, 0)) is Verdict.FENCED


def test_a_wrong_name_deletes_nothing(world: World) -> None:
    step = replace(world.a_step(MARKED), partition=replace(ORDERS, topic="bills"))
    assert world.verdict(step) is Verdict.INVALID
    assert world.verdict(replace(step, partition=replace(ORDERS, topic="a/b"))) is Verdict.INVALID


def test_a_started_copy_of_a_partition_that_goes_is_cleaned_up_by_anybody(world: World) -> None:
    world.accept(world.an_add(2, 250, 299, [(4, 250)]))
    world.delete(MARKED, STARTED)
    delete = world.a_delete(2, SegmentState.COPY_SEGMENT_STARTED)
    world.accept(replace(delete, token=-1, writer=None))
