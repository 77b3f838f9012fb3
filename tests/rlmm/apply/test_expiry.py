"""Expiry marks: what readers don't get any more, and an admin may bring back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import CorruptData
from rlm.retention.mark_times import MarksSeen
from rlmm.apply.expiry import COUNT_MAX, MARKS_MAX, TRASH_MS_MAX
from rlmm.apply.outcome import Verdict
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.partition_state import NOTHING_EXPIRES, Expiry, ExpiryHold, Mode, TopicPolicy
from rlmm.partition_state import ExpiryMark as Mark
from rlmm.records.control_records import (
    ExpiryMark,
    ExpiryTakenBack,
    LogStart,
    TopicPolicyChange,
)
from rlmm.rows import keys
from rlmm.rows.expiry import decode_expiry, encode_expiry, find_expiry
from rlmm.rows.reads import read_measured_time
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows
from rlmm.segment import PartitionDeleteState
from tests.rlmm.state_world import NODE_2, START_MS, World

TRASH_MS = 86_400_000


class TrashWorld(World):
    """Epoch 2 from 0; log start 0; copied 0-99, 100-199 and 200-299."""

    def __init__(self) -> None:
        super().__init__()
        self.leads((2, 0))
        for number in (1, 2, 3):
            self.copy(number, 100 * (number - 1), 100 * number - 1, [(2, 0)])

    def a_mark(self, offset: int, *, joins: bool = False) -> ExpiryMark:
        return ExpiryMark(
            self.partition, self.token, 2, offset, -1, TRASH_MS, 1, 1_000, joins, "too old"
        )

    def following(self, mark: Mark, *, seen_ms: int = TRASH_MS) -> LogStart:
        """The log start that retention moves once a mark's time is over."""
        return replace(
            self.a_log_start(mark.offset, 2),
            policy_offset=-1,
            mark_offset=mark.marked_at,
            seen_ms=seen_ms,
        )

    def taken_back(self, *, hold: bool = False) -> ExpiryTakenBack:
        offset = self.state.expiry.offset
        return ExpiryTakenBack(self.partition, offset, hold, "ann", "by mistake")

    @property
    def marked(self) -> list[int]:
        return [mark.offset for mark in self.state.expiry.marks]


@pytest.fixture
def world() -> TrashWorld:
    return TrashWorld()


def test_a_mark_hides_and_deletes_nothing(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    state = world.state
    assert (state.log_start_offset, state.first_readable_offset) == (0, 100)
    assert (state.segment_count, state.size_bytes) == (3, 3_000)
    assert (state.expiry.segments, state.expiry.size_bytes) == (1, 1_000)
    assert world.verdict(world.a_delete(1)) is Verdict.IN_USE, "the log start is below it"
    assert find_expiry(world.rows, world.partition) == state.expiry


def test_marks_go_forward_by_the_rules_of_a_log_start(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    verdicts = {
        world.a_mark(100): Verdict.NO_EFFECT,
        world.a_mark(50): Verdict.CONFLICT,
        world.a_mark(301): Verdict.GAP,
        world.a_mark(-1): Verdict.INVALID,
        replace(world.a_mark(200), offset_epoch=1): Verdict.DIVERGED,
        replace(world.a_mark(200), token=77): Verdict.FENCED,
        replace(world.a_mark(200), policy_offset=5): Verdict.CONFLICT,
        replace(world.a_mark(200), trash_ms=0): Verdict.INVALID,
        replace(world.a_mark(200), trash_ms=TRASH_MS_MAX + 1): Verdict.INVALID,
        replace(world.a_mark(200), segments=-1): Verdict.INVALID,
        replace(world.a_mark(200), size_bytes=COUNT_MAX + 1): Verdict.INVALID,
    }
    for record, verdict in verdicts.items():
        assert world.verdict(record) is verdict, record
    assert world.marked == [100]
    world.accept(TopicPolicyChange("orders", TopicPolicy(delete_paused=True), -1))
    paused = replace(world.a_mark(200), policy_offset=world.offset)
    assert world.verdict(paused) is Verdict.CONFLICT
    world.delete(PartitionDeleteState.DELETE_PARTITION_MARKED)
    assert world.verdict(world.taken_back()) is Verdict.CONFLICT, "the topic comes back first"


def test_the_log_start_follows_once_the_time_is_over(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    (mark,) = world.state.expiry.marks
    assert world.verdict(world.following(mark, seen_ms=TRASH_MS - 1)) is Verdict.CONFLICT
    assert world.verdict(replace(world.following(mark), offset=101)) is Verdict.CONFLICT
    assert world.verdict(replace(world.following(mark), mark_offset=3)) is Verdict.CONFLICT
    world.accept(world.following(mark))
    state = world.state
    assert (state.expiry, state.log_start_offset) == (NOTHING_EXPIRES, 100)
    world.accept(world.a_delete(1))


def test_the_time_that_all_nodes_measured_counts_and_no_clock_does(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    (mark,) = world.state.expiry.marks
    world.time_ms += 366 * TRASH_MS
    assert world.verdict(world.following(mark, seen_ms=-1)) is Verdict.CONFLICT
    world.time_passes(TRASH_MS)
    assert world.verdict(world.following(mark, seen_ms=-1)) is Verdict.CONFLICT, (
        "the next measurement may have begun before the mark"
    )
    world.time_passes(TIME_STEP_MS_MAX)
    world.accept(world.following(mark, seen_ms=-1))


def test_joined_marks_are_one_with_the_later_time(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    (first,) = world.state.expiry.marks
    world.time_passes(TIME_STEP_MS_MAX)
    world.accept(world.a_mark(200, joins=True))
    (mark,) = world.state.expiry.marks
    assert (mark.offset, mark.segments, mark.size_bytes) == (200, 2, 2_000)
    assert (mark.began_at, mark.began_ms) == (first.began_at, first.began_ms)
    assert mark.counts_from_ms > first.counts_from_ms
    assert world.verdict(world.following(first)) is Verdict.CONFLICT, "it is another by now"
    world.accept(world.a_mark(300))
    assert world.marked == [200, 300]
    world.accept(world.following(mark))
    assert world.marked == [300]


def test_joined_marks_keep_the_longer_time_which_is_measured_and_bounded_counts(
    world: TrashWorld,
) -> None:
    world.accept(replace(world.a_mark(100), size_bytes=COUNT_MAX))
    world.time_passes(TRASH_MS // 32)
    world.accept(replace(world.a_mark(200, joins=True), trash_ms=60_000))
    (mark,) = world.state.expiry.marks
    assert (mark.trash_ms, mark.size_bytes) == (TRASH_MS, COUNT_MAX)
    assert read_measured_time(world.rows).until_ms == mark.counts_from_ms + TRASH_MS


def test_a_mark_that_is_due_is_accepted_also_behind_one_with_a_longer_time(
    world: TrashWorld,
) -> None:
    """As after `retention.trash_s` was lowered."""
    now_s = [0.0]
    seen = MarksSeen(lambda: now_s[0], lambda: read_measured_time(world.rows).ms)
    world.accept(world.a_mark(100))
    seen.look(world.partition, world.state.expiry)
    now_s[0] = TRASH_MS / 1000 - 100
    world.accept(replace(world.a_mark(200), trash_ms=60_000))
    for offset in (100, 200):
        seen.look(world.partition, world.state.expiry)
        now_s[0] += 100
        due = seen.due(world.partition, world.state.expiry)
        assert due is not None
        assert due.mark.offset == offset
        world.accept(world.following(due.mark, seen_ms=due.seen_ms))


def test_nothing_is_said_to_be_taken_back_that_the_log_start_has_passed(
    world: TrashWorld,
) -> None:
    world.accept(world.a_mark(100))
    taken_back = world.taken_back()
    world.log_start(100, 2)
    assert world.verdict(taken_back) is Verdict.CONFLICT


def test_a_mark_with_longer_trash_holds_those_behind_it(world: TrashWorld) -> None:
    world.accept(replace(world.a_mark(100), trash_ms=2 * TRASH_MS), world.a_mark(200))
    last = world.state.expiry.marks[-1]
    assert world.verdict(world.following(last)) is Verdict.CONFLICT
    world.accept(world.following(last, seen_ms=2 * TRASH_MS))


def test_there_is_a_bound_of_marks(world: TrashWorld) -> None:
    for offset in range(1, MARKS_MAX + 3):
        world.accept(world.a_mark(offset))
    assert len(world.state.expiry.marks) == MARKS_MAX
    assert world.state.expiry.below == MARKS_MAX + 2


def test_what_is_taken_back_is_readable_and_its_log_start_refused(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    (mark,) = world.state.expiry.marks
    before = dict(world.rows.scan(b"\x20", b"\x26"))
    taken_back = world.taken_back()
    assert world.verdict(replace(taken_back, replaces_offset=3)) is Verdict.CONFLICT
    assert world.verdict(replace(taken_back, who="x" * 201)) is Verdict.INVALID
    world.accept(taken_back)
    assert world.state.expiry == NOTHING_EXPIRES
    assert dict(world.rows.scan(b"\x20", b"\x26")) == before
    assert world.verdict(taken_back) is Verdict.CONFLICT, "nothing of it is left to take back"
    assert world.verdict(world.following(mark)) is Verdict.CONFLICT
    world.accept(world.a_mark(100))


def test_a_hold_ends_with_the_policy_or_when_it_is_released(world: TrashWorld) -> None:
    without_trash = replace(world.a_log_start(100, 2), policy_offset=-1, mark_offset=-1)
    world.accept(world.a_mark(100))
    world.accept(world.taken_back(hold=True))
    assert world.state.expiry.hold == ExpiryHold(-1, "ann", "by mistake", START_MS)
    assert world.verdict(world.a_mark(100)) is Verdict.CONFLICT
    assert world.verdict(without_trash) is Verdict.CONFLICT, "nor without any trash"
    assert world.verdict(world.taken_back(hold=True)) is Verdict.NO_EFFECT
    world.accept(world.taken_back())
    assert world.state.expiry == NOTHING_EXPIRES
    world.accept(world.a_mark(100))
    world.accept(world.taken_back(hold=True))
    world.accept(TopicPolicyChange("orders", TopicPolicy(5), -1))
    policy_offset = world.offset
    assert world.verdict(world.taken_back()) is Verdict.NO_EFFECT, "it is over already"
    world.accept(world.taken_back(hold=True))
    world.accept(world.taken_back())
    world.accept(replace(world.a_mark(100), policy_offset=policy_offset))
    assert world.marked == [100]
    assert world.state.expiry.held_by(-1) is None


def test_a_log_start_of_an_admin_empties_the_trash(world: TrashWorld) -> None:
    world.accept(world.a_mark(100), world.a_mark(200))
    world.log_start(150, 2)
    assert world.marked == [200]
    world.accept(world.taken_back(hold=True))
    world.log_start(200, 2)
    assert world.state.expiry.hold is not None, "a hold is for retention"


def test_what_is_written_behind_a_cut_is_not_hidden(world: TrashWorld) -> None:
    world.accept(world.a_mark(100), world.a_mark(200), world.a_mark(300))
    world.reset_claim(cut_at=150)
    world.claim((2, 0), (3, 150), node=NODE_2)
    assert world.marked == [100, 150]
    world.reset_claim(cut_at=150)
    world.claim((2, 0), (5, 150), node=NODE_2)
    assert world.marked == [100, 150], "a mark at the cut itself hides nothing new"
    world.reset_claim(cut_at=100)
    world.claim((2, 0), (6, 100))
    assert world.marked == [100]


def test_the_brokers_retention_has_no_marks(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    world.mode(Mode.PAUSED)
    assert world.marked == [100]
    world.mode(Mode.DELEGATED)
    assert world.state.expiry == NOTHING_EXPIRES
    world.claim((3, 0), mode=Mode.DELEGATED)
    assert world.verdict(replace(world.a_mark(100), offset_epoch=3)) is Verdict.CONFLICT
    assert world.verdict(world.taken_back(hold=True)) is Verdict.CONFLICT


def test_a_partition_that_is_gone_has_no_marks(world: TrashWorld) -> None:
    world.accept(world.a_mark(100))
    world.delete(
        PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED
    )
    for number in (1, 2, 3):
        world.accept(world.a_delete(number), world.a_delete_finish(number))
    world.delete(PartitionDeleteState.DELETE_PARTITION_FINISHED)
    assert world.rows.get(keys.expiry_key(world.partition)) is None


@pytest.mark.parametrize("hold", [True, False])
def test_a_restart_from_a_snapshot_brings_back_what_was_marked(
    world: TrashWorld, *, hold: bool
) -> None:
    """The mark may have been taken back behind the snapshot."""
    world.accept(world.a_mark(100))
    if hold:
        world.accept(world.taken_back(hold=True))
    after = MemoryRows()
    after.write(list(restarted(world.rows.items(), end_offset=world.offset + 1)))
    found = find_expiry(after, world.partition)
    assert (found.marks, found.hold) == ((), world.state.expiry.hold if hold else None)
    assert (after.get(keys.expiry_key(world.partition)) is not None) is hold


def test_a_row_keeps_everything() -> None:
    first = Mark(100, 1, 2, 3, START_MS, 5, TRASH_MS, 2, 2**40, "too old")
    marks = (first, first._replace(offset=200, why=""))
    for expiry in (Expiry(marks, None, 7), Expiry((), ExpiryHold(3, "ann", "why", 4), 9)):
        assert decode_expiry(encode_expiry("orders", expiry)) == ("orders", expiry)
    for damaged in (b"\0\1", encode_expiry("orders", Expiry(marks)) + b"\0"):
        with pytest.raises(CorruptData):
            decode_expiry(damaged)
