"""Kafka's golden cases of retention (RemoteLogManagerTest) with their numbers, ours beside them,
and the plan held against the very rules of apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from rlm.retention.retention_plan import (
    BRAKE_SEGMENTS_MIN,
    LogStartMove,
    Reason,
    RetentionFacts,
    RetentionPlan,
    plan_retention,
)
from rlmm.partition_state import Mode, PartitionState, TopicPolicy
from rlmm.rows import queries
from rlmm.rows.coverage import epoch_ranges, ranges_in_lineage
from rlmm.segment import PartitionDeleteState, RemoteLogSegmentMetadata, SegmentState
from tests.rlmm.state_world import START_MS, World

NOW_MS = START_MS + 1
"""Every record of these worlds is a millisecond old unless a test says otherwise."""

KAFKA_EPOCHS = ((0, 0), (1, 20), (3, 50), (4, 100))


def world(*checkpoint: tuple[int, int]) -> World:
    made = World()
    made.leads(*checkpoint or ((0, 0),))
    return made


def add(
    to: World,
    number: int,
    start: int,
    end: int,
    *epochs: tuple[int, int],
    size_bytes: int = 1024,
    age_ms: int = 1,
    finish: bool = True,
) -> None:
    row = to.an_add(number, start, end, epochs or ((0, start),), size_bytes=size_bytes)
    to.accept(replace(row, max_timestamp_ms=NOW_MS - age_ms))
    if finish:
        to.accept(to.a_finish(number))


def plan(
    of: World,
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    now_ms: int = NOW_MS,
    percent_max: float = 100.0,
    held_back: str | None = None,
    accepted: frozenset[Uuid] = frozenset(),
) -> RetentionPlan:
    policy = TopicPolicy(retention_ms=retention_ms, retention_bytes=retention_bytes)
    rows = tuple(queries.list_segments(of.rows, of.partition))
    return plan_retention(
        RetentionFacts(of.state, rows, policy, now_ms, percent_max, held_back, accepted)
    )


def number_of(row: RemoteLogSegmentMetadata) -> int:
    return int.from_bytes(row.segment_id.id, "big")


def going(of: RetentionPlan) -> list[tuple[int, Reason]]:
    return [(number_of(each.row), each.reason) for each in of.deletions]


def carry_out(of: World, made: RetentionPlan) -> None:
    """As the node does it; every step has to be accepted."""
    if made.move_now is not None:
        of.log_start(made.move_now.offset, made.move_now.leader_epoch)
    for each in made.delete_now:
        of.accept(of.a_delete(number_of(each.row)))


# ---- Kafka's cases


@pytest.mark.parametrize(
    ("retention_bytes", "retention_ms", "reason"),
    [(0, -1, Reason.SIZE), (-1, 0, Reason.TIME)],
)
def test_a_retention_of_nothing_takes_both_segments(
    retention_bytes: int, retention_ms: int, reason: Reason
) -> None:
    of = world()
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    made = plan(of, retention_bytes=retention_bytes, retention_ms=retention_ms)
    assert made.log_start == LogStartMove(200, 0)
    assert going(made) == [(1, reason), (2, reason)]
    carry_out(of, made)


def test_a_retention_of_nothing_takes_no_lost_range_behind_the_segments() -> None:
    of = world()
    add(of, 1, 0, 99)
    of.accept(of.a_lost_range(100, 149))
    assert plan(of, retention_bytes=0).log_start == LogStartMove(100, 0)


def test_overlapping_segments_move_log_start_behind_the_longer_one() -> None:
    of = world()
    add(of, 1, 0, 104)
    add(of, 2, 0, 99)
    made = plan(of, retention_ms=0)
    assert made.log_start == LogStartMove(105, 0)
    assert sorted(going(made)) == [(1, Reason.TIME), (2, Reason.TIME)]
    carry_out(of, made)


def fifty(deletable: int) -> World:
    """50 segments of 100 records and 1,024 bytes; the first `deletable` are ten minutes older."""
    of = world(*KAFKA_EPOCHS)
    for number in range(50):
        start, end = number * 100, number * 100 + 99
        first = epoch_for_offset(of.state.lineage, start)
        inside = tuple(each for each in KAFKA_EPOCHS if start < each[1] <= end)
        age_ms = 600_001 if number < deletable else 1
        add(of, number + 1, start, end, (first or 0, start), *inside, age_ms=age_ms)
    return of


@pytest.mark.parametrize("deletable", [0, 1, 23, 50])
@pytest.mark.parametrize("reason", [Reason.SIZE, Reason.TIME])
def test_of_fifty_segments_exactly_those_out_of_retention_go(
    deletable: int, reason: Reason
) -> None:
    of = fifty(deletable)
    if reason is Reason.SIZE:
        made = plan(of, retention_bytes=(50 - deletable) * 1024)
    else:
        made = plan(of, retention_ms=600_000)
    assert going(made) == [(number, reason) for number in range(1, deletable + 1)]
    start = None if made.log_start is None else made.log_start.offset
    assert start == (deletable * 100 or None)
    carry_out(of, made)


def test_a_segment_larger_than_what_is_over_is_kept() -> None:
    of = world()
    add(of, 1, 0, 9, size_bytes=1000)
    add(of, 2, 10, 19, size_bytes=1000)
    assert going(plan(of, retention_bytes=1001)) == []
    assert going(plan(of, retention_bytes=1000)) == [(1, Reason.SIZE)]


def test_a_segment_that_is_being_copied_is_neither_counted_nor_taken() -> None:
    of = world()
    add(of, 1, 0, 149, finish=False)
    assert plan(of, retention_bytes=0, retention_ms=0).deletions == ()
    of.accept(of.a_finish(1))
    assert going(plan(of, retention_bytes=0)) == [(1, Reason.SIZE)]


def test_the_log_start_does_not_pass_a_copy_that_is_under_way() -> None:
    """What fills a lost range may be younger than the segments behind it."""
    made = world()
    add(made, 1, 0, 9, age_ms=100)
    made.accept(made.a_lost_range(10, 19))
    add(made, 2, 20, 29, age_ms=100)
    add(made, 3, 10, 19, finish=False)
    by_time = plan(made, retention_ms=50)
    assert by_time.log_start == LogStartMove(10, 0)
    assert going(by_time) == [(1, Reason.TIME)]
    made.accept(made.a_finish(3))
    assert plan(made, retention_ms=50).log_start == LogStartMove(10, 0)


def test_only_finished_copies_count_for_size() -> None:
    of = world()
    for number in range(11):
        add(of, number + 1, number * 10, number * 10 + 9)
    for number in range(20, 25):  # copies whose process died (KAFKA-17062)
        add(of, number, 110, 119, finish=False)
    made = plan(of, retention_bytes=10 * 1024)
    assert made.size_bytes == 11 * 1024
    assert going(made) == [(1, Reason.SIZE)]


def test_what_lies_below_the_log_start_goes_without_a_move() -> None:
    of = world()
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    of.log_start(150, 0)
    made = plan(of)
    assert made.log_start is None
    assert going(made) == [(1, Reason.LOG_START)]
    carry_out(of, made)


def test_a_segment_stays_whose_last_offset_a_copy_under_way_has() -> None:
    of = world()
    add(of, 1, 0, 99, age_ms=1_000)
    add(of, 2, 99, 199, finish=False)
    made = plan(of, retention_ms=500)
    assert (made.log_start, going(made)) == (None, [])


def test_a_segment_of_which_one_offset_is_readable_stays() -> None:
    of = world()
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    of.log_start(99, 0)
    assert going(plan(of)) == []
    of.log_start(100, 0)
    assert going(plan(of)) == [(1, Reason.LOG_START)]


def test_a_segment_that_expires_behind_one_that_does_not_waits() -> None:
    of = world()
    add(of, 1, 0, 99, age_ms=10)
    add(of, 2, 100, 199, age_ms=1_000)
    assert plan(of, retention_ms=500).deletions == ()


def test_time_goes_on_where_size_ended() -> None:
    of = world()
    add(of, 1, 0, 9, age_ms=10)
    add(of, 2, 10, 19, age_ms=1_000)
    add(of, 3, 20, 29, age_ms=10)
    made = plan(of, retention_ms=500, retention_bytes=2 * 1024)
    assert going(made) == [(1, Reason.SIZE), (2, Reason.TIME)]
    assert made.log_start == LogStartMove(20, 0)
    carry_out(of, made)


# ---- ours


def test_retention_is_over_only_past_its_last_millisecond() -> None:
    of = world()
    add(of, 1, 0, 9, age_ms=500)
    made = plan(of, retention_ms=500)
    assert made.deletions == ()
    assert made.next_due_ms == NOW_MS + 1
    assert going(plan(of, retention_ms=500, now_ms=NOW_MS + 1)) == [(1, Reason.TIME)]


def test_log_start_stops_where_a_segment_in_retention_begins() -> None:
    of = world()
    add(of, 1, 0, 99, age_ms=1_000)
    add(of, 2, 50, 149, age_ms=10)
    made = plan(of, retention_ms=500)
    assert made.log_start == LogStartMove(50, 0)
    assert going(made) == [(1, Reason.TIME)], "what it has from 50 on, the other one serves"
    carry_out(of, made)
    assert of.serving(0, 50) == 2


def test_a_segment_kept_for_what_it_alone_has_above_keeps_what_it_has_below() -> None:
    of = world()
    add(of, 1, 0, 39, age_ms=1_000)
    add(of, 2, 40, 155, age_ms=1_000)
    add(of, 3, 50, 139, age_ms=1_000)
    add(of, 4, 150, 199)
    made = plan(of, retention_bytes=2 * 1024)
    assert made.log_start == LogStartMove(40, 0)
    assert going(made) == [(1, Reason.SIZE)]
    carry_out(of, made)


def test_overlapping_bytes_are_never_counted_twice() -> None:
    of = world()
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    add(of, 3, 100, 199)
    assert plan(of, retention_bytes=2 * 1024).deletions == ()


def test_a_segment_that_is_not_the_lineages_as_a_whole_counts_nothing() -> None:
    """How many of its bytes the lineage has is not known: rather more is kept than asked for."""
    of = world((0, 0))
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    of.claim((0, 0), (1, 150))
    add(of, 3, 150, 249, (1, 150))
    assert plan(of, retention_bytes=2 * 1024).log_start is None, "2 has 50 of its 100 offsets"
    add(of, 4, 250, 349, (1, 250))
    assert plan(of, retention_bytes=2 * 1024).log_start == LogStartMove(150, 1)


def test_a_diverged_segment_goes_once_nothing_in_the_lineage_is_served_by_it() -> None:
    of = world((0, 0))
    add(of, 1, 0, 99)
    add(of, 2, 100, 199)
    of.claim((0, 0), (1, 50))
    made = plan(of)
    assert going(made) == [(2, Reason.UNREFERENCED)], "0-49 of the first are still served"
    assert made.log_start is None
    carry_out(of, made)
    add(of, 3, 0, 149, (0, 0), (1, 50))
    assert plan(of).deletions == (), "in retention, though served by nobody now"


def test_log_start_carries_the_epoch_that_the_lineage_gives_it() -> None:
    of = world((0, 0), (2, 100))
    add(of, 1, 0, 99)
    add(of, 2, 100, 199, (2, 100))
    add(of, 3, 200, 299, (2, 200))
    assert plan(of, retention_bytes=2048).log_start == LogStartMove(100, 2)


def test_the_next_one_is_due_when_all_that_hold_log_start_back_are_expired() -> None:
    of = world()
    add(of, 1, 0, 9, age_ms=400)
    add(of, 2, 0, 9, age_ms=100)
    add(of, 3, 10, 19, age_ms=450)
    assert plan(of, retention_ms=500).next_due_ms == NOW_MS + 401
    assert plan(of).next_due_ms is None


def test_records_without_a_time_count_from_their_copy() -> None:
    of = world()
    row = of.an_add(1, 0, 9, ((0, 0),))
    of.accept(replace(row, max_timestamp_ms=-1), of.a_finish(1))
    assert plan(of, retention_ms=10, now_ms=START_MS + 10).deletions == ()
    assert going(plan(of, retention_ms=10, now_ms=START_MS + 11)) == [(1, Reason.TIME)]


def test_a_large_share_stops_and_says_so_but_what_is_unreachable_goes() -> None:
    of = world()
    for number in range(20):
        add(of, number + 1, number * 10, number * 10 + 9)
    of.log_start(10, 0)
    made = plan(of, retention_bytes=9 * 1024, percent_max=49.0)
    assert made.brake is not None
    assert "10 segments, 50.0 %" in made.brake
    assert len(made.deletions) == 11, "the dry run shows what it would be"
    assert made.move_now is None
    assert [number_of(each.row) for each in made.delete_now] == [1]
    assert plan(of, retention_bytes=9 * 1024, percent_max=50.0).brake is None


def test_a_small_topic_may_expire_as_a_whole() -> None:
    of = world()
    for number in range(BRAKE_SEGMENTS_MIN - 1):
        add(of, number + 1, number * 10, number * 10 + 9)
    assert plan(of, retention_bytes=0, percent_max=1.0).brake is None


def test_while_held_back_it_only_says_what_it_would_do() -> None:
    of = world()
    add(of, 1, 0, 9)
    made = plan(of, retention_bytes=0, held_back="the clocks differ")
    assert going(made) == [(1, Reason.SIZE)]
    assert made.move_now is None
    assert made.delete_now == ()
    assert "the clocks differ" in made.text


def test_without_a_log_start_nothing_expires() -> None:
    of = World()
    of.claim((0, 0))
    made = plan(of, retention_bytes=0)
    assert (made.deletions, made.size_bytes, made.expiring_bytes) == ((), 0, 0)
    assert "the log start is not recorded yet" in made.text


def test_another_mode_and_a_partition_that_goes_are_left_alone() -> None:
    of = world()
    add(of, 1, 0, 9)
    facts = RetentionFacts(
        of.state, tuple(queries.list_segments(of.rows, of.partition)),
        TopicPolicy(retention_bytes=0), NOW_MS, 100.0,
    )  # fmt: skip
    for changed in (
        replace(of.state, mode=Mode.DELEGATED),
        replace(of.state, delete_state=PartitionDeleteState.DELETE_PARTITION_MARKED),
        replace(of.state, adopting=True),
        replace(of.state, log_start_offset=-1),
    ):
        made = plan_retention(replace(facts, state=changed))
        assert made.held_back is not None
        assert made.delete_now == ()
        assert made.move_now is None


# ---- whatever the plan says is what apply accepts

SEGMENT = st.tuples(
    st.integers(0, 60),  # how far it begins below the next offset
    st.integers(1, 40),  # how far it reaches above
    st.integers(0, 1_000),  # its age in ms
    st.integers(1, 3_000),  # its bytes
)
HISTORY = st.lists(st.one_of(SEGMENT, st.integers(0, 60)), min_size=1, max_size=12)
"""Segments copied one after the other, and unclean elections that cut so much of the tail."""


def build(history: Sequence[tuple[int, int, int, int] | int]) -> World:
    of = world((0, 0))
    lineage = [(0, 0)]
    for number, each in enumerate(history, 1):
        following = max(0, of.state.next_offset)
        if isinstance(each, int):
            cut = max(following - each, lineage[-1][1] + 1)
            lineage.append((lineage[-1][0] + 1, cut))
            of.claim(*lineage)
            continue
        below, above, age_ms, size_bytes = each
        start, end = max(0, following - below), following + above
        first = max(entry for entry in lineage if entry[1] <= start)[0]
        inside = tuple(entry for entry in lineage if start < entry[1] <= end)
        add(of, number, start, end, (first, start), *inside, age_ms=age_ms, size_bytes=size_bytes)
    return of


def readable(of: World, borders: set[int]) -> set[int]:
    """Offsets from log start on that a look-up finds: all borders, where alone anything changes."""
    state = of.state
    found = set()
    for offset in borders:
        epoch = epoch_for_offset(state.lineage, offset)
        reached = state.log_start_offset <= offset < state.next_offset
        if reached and epoch is not None and of.serving(epoch, offset) is not None:
            found.add(offset)
    return found


def finished_rows(of: World) -> list[RemoteLogSegmentMetadata]:
    rows = queries.list_segments(of.rows, of.partition)
    return [row for row in rows if row.state is SegmentState.COPY_SEGMENT_FINISHED]


def serves_below(row: RemoteLogSegmentMetadata, of: PartitionState, start: int) -> bool:
    """Whether the segment has an offset of the lineage from log start up to `start`."""
    served = ranges_in_lineage(of.lineage, epoch_ranges(row))
    return any(low < start and high >= of.log_start_offset for low, high in served)


@settings(max_examples=150, deadline=None)
@given(
    history=HISTORY,
    retention_ms=st.one_of(st.just(-1), st.integers(0, 1_000)),
    retention_bytes=st.one_of(st.just(-1), st.integers(0, 12_000)),
)
def test_whatever_is_planned_is_accepted_and_takes_nothing_in_retention(
    history: list[tuple[int, int, int, int] | int], retention_ms: int, retention_bytes: int
) -> None:
    of = build(history)
    borders = {
        border
        for row in finished_rows(of)
        for at in (row.start_offset, row.end_offset)
        for border in (at - 1, at, at + 1)
    }
    for _ in range(len(history) + 1):
        before, state, could_read = finished_rows(of), of.state, readable(of, borders)
        made = plan(of, retention_ms=retention_ms, retention_bytes=retention_bytes)
        if not made.deletions:
            assert made.log_start is None, "log start moves for what goes, never alone"
            return
        carry_out(of, made)
        after = of.state
        start = after.log_start_offset
        assert start >= state.log_start_offset
        assert (after.next_offset, after.highest_copied) == (
            state.next_offset,
            state.highest_copied,
        )
        assert readable(of, borders) == {each for each in could_read if each >= start}
        past_ms = NOW_MS - retention_ms
        for each in made.deletions:
            assert each.reason is not Reason.TIME or each.row.max_timestamp_ms < past_ms
        for_size = [each.row for each in made.deletions if each.reason is Reason.SIZE]
        if for_size:
            left = [row for row in before if row not in for_size]
            assert sum(row.size_bytes for row in left) >= retention_bytes
        elif start > state.log_start_offset:
            young = [row for row in before if row.max_timestamp_ms >= past_ms]
            assert not any(serves_below(row, state, start) for row in young)
    raise AssertionError("each pass takes something, and yet there is more")
