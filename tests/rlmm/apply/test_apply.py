from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmm.apply.apply import Verdict, apply, apply_over, partition_of
from rlmm.apply.purge import (
    PURGES_PER_APPLY_MAX,
    RECORD_TIME_STEP_MS_MAX,
    TIME_STEP_MS_MAX,
    TOMBSTONE_KEPT_MS,
)
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import FeatureLevel, TimePassed, TopicPolicyChange
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows.reads import read_measured_time, read_record_time, read_segment
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.segment import SegmentState
from tests.rlmm.state_world import ORDERS, START_MS, World, segment_uuid
from tests.rlmm.tombstones import is_segment_tombstone

COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED


def test_record_time_is_the_running_maximum_in_steps_of_an_hour_at_most() -> None:
    world = World()
    times = []
    for time_ms in (START_MS, START_MS - 5, START_MS + 10, START_MS + 10**12, 0, -(10**15)):
        world.time_ms = time_ms
        world.put(FeatureLevel(0, 0))
        times.append(read_record_time(world.rows) or 0)
    hour_later = START_MS + 10 + RECORD_TIME_STEP_MS_MAX
    assert times == [START_MS, START_MS, START_MS + 10, hour_later, hour_later, hour_later]


def test_a_negative_first_timestamp_counts_as_zero() -> None:
    world = World()
    world.time_ms = -(2**63)
    world.put(FeatureLevel(0, 0))
    assert (read_record_time(world.rows) or 0) == 0


def advance(world: World, measured_ms: int) -> None:
    """Let nodes measure up to so much time."""
    world.time_passes(measured_ms - read_measured_time(world.rows).ms)


def test_measured_time_goes_by_what_was_measured_since_the_last_record_of_it() -> None:
    world = World()
    world.accept(TimePassed(-1, 5))
    first = world.offset
    assert world.verdict(TimePassed(-1, 5)) is Verdict.CONFLICT, "the same interval once more"
    assert world.verdict(TimePassed(first, 0)) is Verdict.INVALID
    assert world.verdict(TimePassed(first, -(2**60))) is Verdict.INVALID
    world.accept(TimePassed(first, 10**15))
    assert read_measured_time(world.rows) == (5 + TIME_STEP_MS_MAX, world.offset, 0)
    for time_ms in (START_MS + 10**12, START_MS):
        world.time_ms = time_ms
        world.put(FeatureLevel(0, 0))
    assert read_measured_time(world.rows).ms == 5 + TIME_STEP_MS_MAX, "no clock moves it"


def with_tombstones(count: int) -> World:
    world = World()
    world.leads((4, 0))
    for number in range(1, count + 1):
        world.accept(
            world.an_add(number, 0, 9, [(4, 0)]),
            world.a_delete(number, COPY_STARTED),
            world.a_delete_finish(number),
        )
    return world


def tombstones(world: World, count: int) -> int:
    ids = (segment_uuid(number) for number in range(1, count + 1))
    return sum(is_segment_tombstone(world.rows, id_) for id_ in ids)


def test_tombstones_go_after_thirty_days_that_were_measured() -> None:
    world = with_tombstones(1)
    kept_ms = TOMBSTONE_KEPT_MS + TIME_STEP_MS_MAX
    world.time_ms += 10 * TOMBSTONE_KEPT_MS
    advance(world, kept_ms - 1)
    world.accept(world.an_add(50, 0, 9, [(4, 0)]))
    assert tombstones(world, 1) == 1
    assert world.verdict(world.an_add(1, 0, 9, [(4, 0)])) is Verdict.GONE
    advance(world, kept_ms)
    assert tombstones(world, 1) == 0
    world.accept(world.an_add(1, 0, 9, [(4, 0)]))


def test_a_record_removes_only_a_few_tombstones() -> None:
    count = PURGES_PER_APPLY_MAX * 2 + 3
    world = with_tombstones(count)
    advance(world, TOMBSTONE_KEPT_MS + TIME_STEP_MS_MAX)
    left = [tombstones(world, count)]
    for number in range(100, 103):
        world.accept(world.an_add(number, 0, 9, [(4, 0)]))
        left.append(tombstones(world, count))
    assert left == [count - PURGES_PER_APPLY_MAX, 3, 0, 0]


@settings(max_examples=100, deadline=None)
@given(
    st.none() | st.integers(-2, 1200) | st.integers(-(2**31), 2**31),
    st.binary(max_size=300),
    st.integers(-(2**63), 2**63 - 1),
)
def test_any_bytes_are_judged_and_nothing_is_raised(
    control_type: int | None, value: bytes, timestamp_ms: int
) -> None:
    world = World()
    world.time_ms = timestamp_ms
    applied = world.commit(control_type, value)
    assert applied.outcome.verdict is Verdict.INVALID
    assert applied.outcome.message
    assert applied.partition is None
    assert [key for key, _ in world.rows.items()] == [bytes((2,))]


def examples() -> list[MetadataRecord]:
    world = World()
    world.token = 0
    return [
        world.a_claim([(4, 0), (5, 10)]),
        world.a_log_start(5, 4),
        world.an_add(1, 0, 9, [(4, 0)]),
        world.a_finish(1),
        world.a_delete(1),
        world.a_lost_range(10, 19),
        TopicPolicyChange("orders", TopicPolicy(), -1),
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(examples()),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_damaged_records_are_judged_and_nothing_is_raised(
    record: MetadataRecord, damage: list[tuple[int, int]]
) -> None:
    world = World()
    world.leads((4, 0))
    world.accept(world.an_add(1, 0, 9, [(4, 0)]))
    proposal = encode(record)
    value = bytearray(proposal.value)
    for at, byte in damage:
        value[at % len(value)] = byte
    world.commit(proposal.control_type, bytes(value))
    world.state.next_offset  # noqa: B018 - reading what is left must work as well


def test_every_refusal_says_what_to_do() -> None:
    world = World()
    for record in examples()[1:-1]:
        outcome = world.put(record)
        assert outcome.verdict is not Verdict.ACCEPTED
        assert len(outcome.message) > 20


def test_a_record_names_its_partition() -> None:
    world = World()
    assert partition_of(world.a_finish(1)) == ORDERS
    assert partition_of(world.a_claim([(4, 0)])) == ORDERS
    assert partition_of(FeatureLevel(2, -1)) is None
    applied = apply(world.rows, CommittedRecord(0, 1, START_MS, *_fields(world.a_finish(1))))
    assert applied.partition == ORDERS


def _fields(record: MetadataRecord) -> tuple[int | None, bytes]:
    proposal = encode(record)
    return proposal.control_type, proposal.value


def test_apply_reads_rows_and_writes_none() -> None:
    world = World()
    world.leads((4, 0))
    before = world.rows.items()
    control_type, value = _fields(world.an_add(1, 0, 9, [(4, 0)]))
    record = CommittedRecord(9, 1, START_MS, control_type, value)
    first = apply(world.rows, record)
    assert world.rows.items() == before
    assert apply(world.rows, record) == first
    assert [key for key, _ in first.writes] == sorted(key for key, _ in first.writes)


def test_writes_that_change_nothing_are_left_out() -> None:
    world = World()
    world.leads((4, 0))
    control_type, value = _fields(world.a_log_start(0, 4))
    applied = apply(world.rows, CommittedRecord(9, 1, world.time_ms, control_type, value))
    assert applied.outcome.verdict is Verdict.NO_EFFECT
    assert applied.writes == ()


@pytest.mark.parametrize("tag", [3, 9_999, 20_000])
def test_unknown_tagged_fields_survive_every_rewriting_of_a_row(tag: int) -> None:
    world = World()
    world.leads((4, 0))
    nested = ((0, ((1, b"in the partition"),)), (2, ((5, b"in an epoch"),)))
    added = replace(
        world.an_add(1, 0, 9, [(4, 0)]),
        unknown_tags=((tag, b"newer"),),
        nested_unknown_tags=nested,
    )
    world.accept(added, world.a_finish(1))
    world.log_start(10, 4)
    world.accept(world.a_delete(1))
    row = read_segment(world.rows, segment_uuid(1))
    assert row is not None
    assert row.unknown_tags == ((tag, b"newer"),)
    assert row.nested_unknown_tags == nested


def test_replay_comes_to_the_same_rows() -> None:
    world = with_tombstones(3)
    again = MemoryRows()
    for record in world.records:
        again.write(apply(again, record).writes)
    assert again.items() == world.rows.items()


def test_a_step_of_many_records_comes_to_the_same_rows() -> None:
    world = with_tombstones(3)
    rows, outcomes = MemoryRows(), []
    for start in range(0, len(world.records), 7):
        overlay = OverlayRows(rows)
        for record in world.records[start : start + 7]:
            outcomes.append(apply_over(overlay, record)[0])
        rows.write(overlay.writes())
    assert rows.items() == world.rows.items()
    again = MemoryRows()
    for record, outcome in zip(world.records, outcomes, strict=True):
        applied = apply(again, record)
        assert applied.outcome == outcome
        again.write(applied.writes)
