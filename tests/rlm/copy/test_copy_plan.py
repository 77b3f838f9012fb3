"""Which segment is next, or why none is. Cases after Kafka's RemoteLogManagerTest (candidates)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.control.backoff import BackOff, FailureKind
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.copy_plan import (
    CopySegment,
    PlanFacts,
    RecordLogStart,
    RecordLostRange,
    eligible_bytes,
    plan,
    rests_on_log_start,
)
from rlmm.partition_state import LostOffsets, PartitionState
from tests.rlm.planner_facts import NOW_MS, LogSegment, epochs, log, state


def facts(
    segments: tuple[LogSegment, ...],
    lso: int,
    partition_state: PartitionState,
    *,
    local_start: int | None = None,
    linked: int = 0,
) -> PlanFacts:
    """The first `linked` segments are held; of the others those below `local_start` are cut."""
    start = segments[0].base_offset if local_start is None else local_start
    cut = (
        replace(each, first_known_offset=start) if each.base_offset < start else each
        for each in segments[linked:]
    )
    return PlanFacts(
        segments=(*segments[:linked], *cut),
        linked_count=linked,
        checkpoint=partition_state.lineage,
        local_log_start_offset=start,
        last_stable_offset=lso,
        state=partition_state,
        now_ms=NOW_MS,
    )


def waits(planned: PlanFacts) -> Wait:
    step = plan(planned)
    assert isinstance(step, Wait)
    return step


def copied_in_order(segments: tuple[LogSegment, ...], lso: int) -> list[tuple[int, int]]:
    """Bases and next bases that the planner copies one after the other."""
    found: list[tuple[int, int]] = []
    partition = state(lineage=epochs((0, 5)), log_start=5)
    while isinstance(step := plan(facts(segments, lso, partition)), CopySegment):
        found.append((step.base_offset, step.next_base_offset))
        partition = replace(partition, next_offset=step.next_base_offset)
    return found


def test_the_active_segment_is_never_copied() -> None:
    assert copied_in_order(log(5, 10, 15), lso=20) == [(5, 10), (10, 15)]


def test_segments_that_reach_above_the_last_stable_offset_wait() -> None:
    assert copied_in_order(log(5, 10, 15, 20), lso=15) == [(5, 10), (10, 15)]
    partition = state(lineage=epochs((0, 5)), log_start=5, next_offset=15)
    wait = waits(facts(log(5, 10, 15, 20), 15, partition))
    assert wait.why is WhyNot.WAITING_FOR_LSO
    assert "20" in wait.text


def test_a_segment_whose_next_base_is_the_last_stable_offset_is_copied() -> None:
    partition = state(lineage=epochs((0, 0), (1, 100)))
    step = plan(facts(log(0, 150), 150, partition))
    assert step == CopySegment(0, 150, 1_000)


def test_the_segment_that_contains_the_next_offset_is_copied_though_its_base_is_lower() -> None:
    partition = state(highest=(119, 0))
    assert plan(facts(log(50, 100, 150), 200, partition)) == CopySegment(100, 150, 1_000)


def test_nothing_is_left_when_the_next_offset_is_in_the_active_segment() -> None:
    wait = waits(facts(log(0, 100), 500, state(highest=(99, 0))))
    assert wait.why is WhyNot.NO_SEALED_SEGMENT
    assert "100" in wait.text


def test_the_first_claim_records_the_local_log_start_when_nothing_was_ever_copied() -> None:
    partition = state(lineage=epochs((0, 0), (3, 40)), log_start=-1, next_offset=-1)
    step = plan(facts(log(0, 100, 200), 300, partition, local_start=57))
    assert step == RecordLogStart(57, 3)


def test_files_that_the_log_start_passed_and_are_wanted_still_come_above_it() -> None:
    partition = state(lineage=epochs((0, 0), (3, 40)), log_start=-1, next_offset=-1)
    known = facts(log(0, 100, 200), 300, partition, local_start=57)
    assert plan(replace(known, files_wanted_from=10)) == RecordLogStart(10, 0)


def test_a_log_start_below_the_first_epoch_belongs_to_that_epoch() -> None:
    partition = state(lineage=epochs((4, 120)), log_start=-1, next_offset=-1)
    assert plan(facts(log(100, 200), 300, partition)) == RecordLogStart(100, 4)


def test_no_log_start_is_recorded_with_a_doubtful_clock_or_without_epochs() -> None:
    unknown = facts(log(0, 100), 300, state(log_start=-1, next_offset=-1))
    trouble = replace(unknown, clock_trouble="an hour apart")
    assert waits(trouble) == Wait(WhyNot.CLOCK, "an hour apart")
    assert waits(replace(unknown, checkpoint=())).why is WhyNot.NO_LEADER_EPOCH


def test_a_log_start_above_the_last_stable_offset_is_not_believed() -> None:
    unknown = state(log_start=-1, next_offset=-1)
    wait = waits(facts(log(0, 100), 200, unknown, local_start=2**62))
    assert wait.why is WhyNot.WAITING_FOR_LSO
    assert plan(facts(log(0, 100), 200, unknown, local_start=200)) == RecordLogStart(200, 0)


def test_copying_goes_on_with_a_doubtful_clock() -> None:
    trouble = replace(facts(log(0, 100), 300, state()), clock_trouble="an hour apart")
    assert isinstance(plan(trouble), CopySegment)


def test_a_gap_that_local_retention_made_becomes_a_lost_range() -> None:
    step = plan(facts(log(300, 400), 500, state(highest=(199, 0))))
    assert isinstance(step, RecordLostRange)
    assert (step.start, step.end) == (200, 299)
    assert "300" in step.why


def test_a_gap_is_not_believed_before_the_local_log_is_known_to_be_committed() -> None:
    wait = waits(facts(log(300, 400), 299, state(highest=(199, 0))))
    assert wait.why is WhyNot.WAITING_FOR_LSO


def test_a_segment_still_here_that_overlaps_a_lost_range_is_copied_first() -> None:
    lost = (LostOffsets(100, 249, "gone"),)
    partition = state(lost=lost, next_offset=300)
    planned = facts(log(0, 100, 200, 300, 400), 500, partition)
    assert plan(planned) == CopySegment(100, 200, 1_000, fills_lost_range=True)
    tried = replace(planned, fills_tried=frozenset({(100, 199)}))
    assert plan(tried) == CopySegment(200, 300, 1_000, fills_lost_range=True)
    tried = replace(planned, fills_tried=frozenset({(100, 199), (200, 249)}))
    assert plan(tried) == CopySegment(200, 300, 1_000, fills_lost_range=True)
    tried = replace(planned, fills_tried=frozenset({(100, 199), (200, 299)}))
    assert plan(tried) == CopySegment(300, 400, 1_000)


def test_a_segment_outside_the_lineage_is_not_copied() -> None:
    partition = state(lineage=epochs((0, 0), (5, 50)))
    planned = replace(facts(log(0, 100, 200), 300, partition), checkpoint=epochs((0, 0), (3, 60)))
    assert waits(planned).why is WhyNot.DIVERGED


def test_an_empty_directory_has_nothing_to_copy() -> None:
    planned = PlanFacts((), epochs((0, 0)), 0, 0, state(), NOW_MS)
    assert waits(planned).why is WhyNot.NO_SEALED_SEGMENT


def test_history_begins_where_held_segments_of_the_lineage_reach_down_without_a_gap() -> None:
    segments = (LogSegment(0, 10), LogSegment(20, 30), LogSegment(30, 40), LogSegment(40, None))
    nothing = state(lineage=epochs((0, 0)), next_offset=-1)
    for local_start, expected in ((40, 20), (45, 45)):
        step = plan(facts(segments, 500, nothing, local_start=local_start, linked=3))
        assert step == RecordLogStart(expected, 0)


def test_history_begins_where_held_segments_that_overlap_reach_down() -> None:
    segments = (LogSegment(10, 35), LogSegment(30, 45), LogSegment(40, 50), LogSegment(50, None))
    nothing = state(lineage=epochs((0, 0)), next_offset=-1)
    for local_start, expected in ((40, 10), (42, 42)):
        step = plan(facts(segments, 500, nothing, local_start=local_start, linked=2))
        assert step == RecordLogStart(expected, 0)


def test_a_gap_among_held_segments_or_behind_them_is_lost_and_one_in_the_log_is_not() -> None:
    segments = (LogSegment(0, 10), LogSegment(20, 30), LogSegment(40, 50), LogSegment(60, None))
    for next_offset, held, expected in ((10, 2, (10, 19)), (30, 2, (30, 39)), (50, 2, None)):
        partition = state(highest=(next_offset - 1, 0))
        step = plan(facts(segments, 500, partition, local_start=40, linked=held))
        if expected is None:
            assert isinstance(step, Wait)
        else:
            assert isinstance(step, RecordLostRange)
            assert (step.start, step.end) == expected


def test_what_delete_records_took_is_lost_and_the_rest_of_its_segment_is_copied() -> None:
    segments, partition = log(0, 20, 50, 60), state(highest=(9, 0))
    step = plan(facts(segments, 500, partition, local_start=30))
    assert isinstance(step, RecordLostRange)
    assert (step.start, step.end) == (10, 29)
    waiting = waits(facts(segments, 29, partition, local_start=30))
    assert waiting.why is WhyNot.WAITING_FOR_LSO
    after = replace(partition, next_offset=30, lost_ranges=(LostOffsets(10, 29, "deleted"),))
    step = plan(facts(segments, 500, after, local_start=30))
    assert step == CopySegment(20, 50, segments[1].size_bytes)


@given(
    bases=st.lists(st.integers(0, 60), min_size=1, max_size=5, unique=True).map(sorted),
    above=st.integers(0, 60), said=st.integers(0, 60), copied_to=st.integers(-1, 60),
    wanted_from=st.integers(0, 60),
)  # fmt: skip
def test_only_a_log_start_that_was_said_takes_what_is_on_the_disk(
    bases: list[int], above: int, said: int, copied_to: int, wanted_from: int
) -> None:
    partition = replace(state(log_start=-1), next_offset=copied_to, log_start_offset=copied_to)
    planned = facts(log(*bases), 500, partition, local_start=max(bases[0], above))
    wanted_from = max(said, wanted_from)
    step = plan(replace(planned, log_start_said=said, files_wanted_from=wanted_from))
    kept_from = max(bases[0], said)
    if isinstance(step, RecordLogStart):
        assert step.offset <= kept_from
    if isinstance(step, RecordLostRange):
        assert step.end < kept_from


def test_of_a_held_segment_and_of_the_brokers_own_what_each_has_left_counts() -> None:
    """DeleteRecords had reached 6 when the first was held, and 25 since."""
    held, own = LogSegment(0, 20, first_known_offset=6), log(20, 40, 60)
    lost = (LostOffsets(0, 24, "deleted"),)
    partition = replace(state(highest=(39, 0), lost=lost), next_offset=40)
    planned = facts((held, *own), 500, partition, local_start=25, linked=1)
    assert plan(planned) == CopySegment(0, 20, held.size_bytes, fills_lost_range=True)
    tried = replace(planned, fills_tried=frozenset({(0, 19)}))
    assert plan(tried) == CopySegment(40, 60, 1_000)  # 20 to 24 are not in the second one
    gone = replace(planned, state=replace(partition, lost_ranges=(LostOffsets(0, 5, "deleted"),)))
    assert plan(gone) == CopySegment(40, 60, 1_000)  # nor 0 to 5 in the first


def test_a_disk_that_still_has_what_another_leader_lost_brings_it_back() -> None:
    segments = log(0, 20, 50, 60)
    lost = replace(
        state(highest=(9, 0)), next_offset=30, lost_ranges=(LostOffsets(10, 29, "gone"),)
    )
    step = plan(facts(segments, 500, lost, local_start=0))
    assert step == CopySegment(0, 20, segments[0].size_bytes, fills_lost_range=True)
    # Of the first segment nothing is left below the log start; of the second half of it is.
    step = plan(facts(segments, 500, lost, local_start=25))
    assert step == CopySegment(20, 50, segments[1].size_bytes, fills_lost_range=True)


def test_lost_offsets_of_epochs_below_the_recorded_ones_are_not_copied() -> None:
    """The lineage would not serve them, so that each claim would copy them again."""
    segments = log(0, 20, 50, 60)
    recorded = state(lineage=epochs((3, 15)), highest=(49, 3), log_start=0)
    for lost, is_copied in (((0, 9), False), ((0, 10), True)):
        ranges = (LostOffsets(*lost, "gone"),)
        planned = facts(segments, 500, replace(recorded, lost_ranges=ranges), local_start=0)
        step = plan(replace(planned, checkpoint=epochs((2, 0), (3, 10))))
        assert (isinstance(step, CopySegment) and step.fills_lost_range) is is_copied


def test_a_next_offset_in_no_segment_is_said() -> None:
    segments = (LogSegment(0, 100), LogSegment(200, None))
    wait = waits(facts(segments, 500, state(highest=(149, 0))))
    assert wait.why is WhyNot.HOLE_IN_LOG
    assert "contains the next offset 150" in wait.text


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (FailureKind.CORRUPT, WhyNot.BLOCKED),
        (FailureKind.TRANSIENT, WhyNot.BACK_OFF),
        (FailureKind.SOURCE_CHANGED, WhyNot.BACK_OFF),
    ],
)
def test_a_failed_partition_waits_until_its_time(kind: FailureKind, why: WhyNot) -> None:
    back_off = BackOff(1, NOW_MS + 50, kind, "batch at 10 is damaged")
    planned = replace(facts(log(0, 100), 300, state()), back_off=back_off)
    assert waits(planned) == Wait(why, "batch at 10 is damaged", NOW_MS + 50)
    assert isinstance(plan(replace(planned, now_ms=NOW_MS + 50)), CopySegment)


def test_the_kill_switch_comes_before_everything() -> None:
    planned = replace(facts(log(0, 100), 300, state()), paused="paused by policy")
    assert waits(planned) == Wait(WhyNot.PAUSED, "paused by policy")


def test_the_backlog_counts_committed_sealed_segments_from_the_next_offset_on() -> None:
    planned = facts(log(0, 100, 200, 300, 400), 300, state(highest=(119, 0)))
    assert eligible_bytes(planned) == 2_000
    held = LogSegment(0, 220, 2_200)  # the segments in it are not copied once it is
    assert (
        eligible_bytes(replace(planned, segments=(held, *planned.segments), linked_count=1))
        == 3_200
    )


def test_only_steps_below_or_at_the_brokers_log_start_rest_on_it() -> None:
    """It is asked for anew before such a step, since DeleteRecords may have raised it."""
    planned = facts(log(0, 10, 20, 30), 30, state(), local_start=10, linked=1)
    first = RecordLogStart(0, 0)
    assert rests_on_log_start(replace(first, offset=-1), planned)
    assert not rests_on_log_start(replace(first, offset=10), planned)
    assert not rests_on_log_start(RecordLostRange(0, 9, "gone"), planned)
    copies = [CopySegment(0, 10, 100, gone=gone) for gone in (True, False)]
    assert [rests_on_log_start(each, planned) for each in copies] == [True, False]
    waits = [Wait(why, "") for why in (WhyNot.EPOCHS_MISSING, WhyNot.WAITING_FOR_LSO)]
    assert [rests_on_log_start(each, planned) for each in waits] == [True, False]
