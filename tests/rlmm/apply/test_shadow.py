"""The outbox of the shadow, and reports about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlm.migration.topic_replay import TopicReplay
from rlmm.apply import shadow as shadow_rules
from rlmm.apply.outcome import Verdict
from rlmm.apply.usual_adds import judged
from rlmm.metadata_shadow import OutboxRow, Shadow, TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import ShadowWritten
from rlmm.records.kafkas_records import as_kafka_writes
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows.reads import read_segment
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.rows.shadow import (
    RESTARTED,
    decode_outbox,
    decode_position,
    decode_shadow,
    encode_outbox,
    encode_position,
    encode_shadow,
    find_shadow,
    outbox_rows,
    topic_positions,
)
from rlmm.rows.snapshot_rows import from_proposals, to_proposals
from rlmm.segment import PartitionDeleteState, SegmentState
from tests.rlmm.apply.migration_world import TOPIC_ID, MigrationWorld
from tests.rlmm.records.test_records import GOLDEN
from tests.rlmm.state_world import ORDERS, PAYMENTS, START_MS, World, segment_uuid

NONE, KAFKA, SWITCHING, QUORUM, DONE, BACK = MigrationPhase
COPYING, COPIED, DELETING, DELETED = SegmentState


@pytest.fixture
def world() -> MigrationWorld:
    """In QUORUM, with a delegated partition."""
    world = MigrationWorld()
    world.phases(KAFKA, SWITCHING, QUORUM)
    world.claim((4, 0), mode=Mode.DELEGATED)
    return world


def outbox(world: World) -> list[OutboxRow]:
    return list(outbox_rows(world.rows))


def state(world: World) -> Shadow:
    found = find_shadow(world.rows)
    assert found is not None
    return found


def replayed(rows: Iterable[OutboxRow]) -> TopicReplay:
    replay = TopicReplay("outbox")
    for row in rows:
        replay.apply(row.offset, row.value)
    assert (replay.unreadable, replay.ignored) == (0, {})
    return replay


def test_each_accepted_change_is_kept_as_kafka_would_write_it(world: MigrationWorld) -> None:
    add, finish = world.an_add(1, 0, 99, [(4, 0)]), world.a_finish(1)
    world.accept(add, finish)
    first, second = outbox(world)
    assert (first.offset, second.offset) == (world.offset - 1, world.offset)
    assert (first.time_ms, second.time_ms) == (START_MS, START_MS)
    bare = replace(add, token=-1, writer=None, upload_deadline_ms=-1)
    assert first.value == encode(bare).value
    assert second.value == encode(replace(finish, token=-1, writer=None)).value
    assert state(world).rows == 2


def test_what_is_not_accepted_or_not_delegated_is_not_kept(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    kept = outbox(world)
    assert world.verdict(world.a_finish(1)) is Verdict.NO_EFFECT
    assert world.verdict(world.a_finish(2)) is Verdict.CONFLICT
    world.partition = PAYMENTS
    world.leads((4, 0))
    world.copy(9, 0, 99, [(4, 0)])
    assert outbox(world) == kept


@pytest.mark.parametrize("phases", [(), (KAFKA,), (KAFKA, SWITCHING, QUORUM, DONE)])
def test_other_phases_keep_nothing(phases: tuple[MigrationPhase, ...]) -> None:
    world = MigrationWorld()
    world.phases(*phases)
    if KAFKA not in phases or DONE in phases:
        world.claim((4, 0), mode=Mode.DELEGATED)
        world.copy(1, 0, 99, [(4, 0)])
    assert outbox(world) == []


def test_an_update_carries_the_custom_metadata_that_our_row_keeps(world: MigrationWorld) -> None:
    """Kafka's cache takes that of each update, also none."""
    world.copy(1, 0, 99, [(4, 0)])
    world.accept(world.a_delete(1))
    (cache,) = replayed(outbox(world)).caches.values()
    (row,) = cache.rows.values()
    assert (row.state, row.custom_metadata) == (DELETING, b"checksums")


def test_the_end_of_a_partition_is_kept_too(world: MigrationWorld) -> None:
    steps = list(PartitionDeleteState)
    world.delete(*steps)
    replay = replayed(outbox(world))
    assert len(outbox(world)) == len(steps)
    assert (replay.caches, replay.deletions) == ({}, {})


def test_our_own_tags_are_left_out_and_kafkas_stay() -> None:
    for record, golden in GOLDEN:
        theirs = ((3, b"kafka's"),)
        ours = replace(record, unknown_tags=(*theirs, (10_999, b"ours")))
        custom = getattr(record, "custom_metadata", None)
        bare = as_kafka_writes(ours, custom)  # type: ignore[arg-type]
        assert bare == as_kafka_writes(replace(record, unknown_tags=theirs), custom)  # type: ignore[arg-type]
        assert encode(as_kafka_writes(record, custom)).value.hex() == golden  # type: ignore[arg-type]


def histories(seed: int) -> MigrationWorld:
    """Chance decides what brokers propose; most of it is right."""
    rng, world = Random(seed), MigrationWorld()
    world.phases(KAFKA, SWITCHING, QUORUM)
    for partition in (ORDERS, PAYMENTS):
        world.partition = partition
        world.claim((4, 0), mode=Mode.DELEGATED)
        token = world.token
        for _ in range(40):
            number = rng.randrange(1, 8) + (0 if partition is ORDERS else 100)
            records: list[MetadataRecord] = [
                world.an_add(number, 10 * number, 10 * number + 9, [(4, 10 * number)]),
                world.a_finish(number),
                world.an_update(number, COPIED),
                world.a_delete(number, rng.choice([COPYING, COPIED])),
                world.a_delete_finish(number),
            ]
            world.put(rng.choice(records))
            if rng.random() < 0.05:
                world.claim((4, 0), (5, 500 + world.offset), mode=Mode.DELEGATED)
                token = world.token
        world.token = token
        if rng.random() < 0.3:
            world.put(world.a_step(PartitionDeleteState.DELETE_PARTITION_MARKED))
            world.put(world.a_step(PartitionDeleteState.DELETE_PARTITION_STARTED))
    return world


@pytest.mark.parametrize("seed", range(40))
def test_kafkas_manager_makes_our_rows_of_the_outbox(seed: int) -> None:
    world = histories(seed)
    replay = replayed(outbox(world))
    for partition in (ORDERS, PAYMENTS):
        world.partition = partition
        cache = replay.caches.get(partition)
        theirs = {} if cache is None else {each.segment_id: each for each in cache.rows.values()}
        ours = {}
        for number in world.listed():
            row = read_segment(world.rows, segment_uuid(number))
            assert row is not None
            ours[row.segment_id] = as_kafka_writes(row)
        assert theirs == ours


@pytest.mark.parametrize("seed", range(10))
def test_runs_of_usual_adds_keep_the_same(seed: int) -> None:
    world = histories(seed)
    for _ in range(5):
        world.put(world.an_add(500 + world.offset, 0, 9, [(4, 0)]))
    again = MemoryRows()
    rng = Random(seed)
    left = list(world.records)
    while left:
        some, left = left[: (size := rng.randrange(1, 30))], left[size:]
        overlay = OverlayRows(again)
        for _ in judged(overlay, some):
            pass
        again.write(overlay.writes())
    assert again.items() == world.rows.items()


def a_report(world: MigrationWorld, up_to: int = -1, **more: object) -> ShadowWritten:
    begun = state(world).begun
    return replace(ShadowWritten(begun, TOPIC_ID, 3, up_to), **more)  # type: ignore[arg-type]


def test_a_report_removes_what_is_in_the_topic(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    first, second = outbox(world)
    world.accept(a_report(world, first.offset, positions=(TopicPosition(1, 7, first.offset),)))
    assert outbox(world) == [second]
    assert list(topic_positions(world.rows)) == [TopicPosition(1, 7, first.offset)]
    now = state(world)
    assert (now.written_up_to, now.rows, now.topic_id, now.partitions) == (
        first.offset, 1, TOPIC_ID, 3,
    )  # fmt: skip
    assert world.verdict(a_report(world, first.offset)) is Verdict.NO_EFFECT
    world.accept(a_report(world, second.offset))
    assert (outbox(world), state(world).rows) == ([], 0)


def test_reports_only_move_forward(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    up_to = world.offset
    world.accept(a_report(world, up_to, positions=(TopicPosition(1, 7, up_to),)))
    late = a_report(world, up_to - 1, positions=(TopicPosition(1, 5, up_to - 1),))
    assert world.verdict(late) is Verdict.NO_EFFECT
    assert state(world).written_up_to == up_to
    assert list(topic_positions(world.rows)) == [TopicPosition(1, 7, up_to)]


def test_a_report_of_another_topic_or_switch_is_refused(world: MigrationWorld) -> None:
    world.accept(a_report(world, positions=(TopicPosition(0, 0),)))
    for wrong in (
        a_report(world, topic_id=Uuid(b"another-topic-id")),
        a_report(world, partitions=4),
        a_report(world, begun=state(world).begun - 1),
    ):
        assert world.verdict(wrong) is Verdict.CONFLICT
    assert not world.changed_by(a_report(world, partitions=4))


def test_impossible_reports_are_invalid(world: MigrationWorld) -> None:
    for wrong in (
        a_report(world, partitions=0),
        a_report(world, partitions=10_001),
        a_report(world, world.offset + 50),
        a_report(world, -2),
        a_report(world, positions=(TopicPosition(3, 1),)),
        a_report(world, positions=(TopicPosition(1, 1), TopicPosition(1, 2))),
        a_report(world, positions=(TopicPosition(0, -1),)),
        a_report(world, positions=(TopicPosition(0, 1, -2),)),
        a_report(world, positions=(TopicPosition(0, 1, world.offset + 50),)),
    ):
        assert world.verdict(wrong) is Verdict.INVALID, wrong


def test_without_a_switch_there_is_nothing_to_report() -> None:
    world = MigrationWorld()
    assert world.verdict(ShadowWritten(-1, TOPIC_ID, 3)) is Verdict.CONFLICT
    world.phases(KAFKA)
    assert world.verdict(ShadowWritten(-1, TOPIC_ID, 3)) is Verdict.CONFLICT


def test_a_report_that_comes_after_the_way_back_is_refused(world: MigrationWorld) -> None:
    late = a_report(world, positions=(TopicPosition(0, 7),))
    world.phases(BACK, KAFKA)
    assert world.verdict(late) is Verdict.CONFLICT


def test_a_switch_can_say_where_the_topic_ended() -> None:
    world = MigrationWorld()
    world.phases(KAFKA, SWITCHING)
    ends = (TopicPosition(0, 40), TopicPosition(1, 0), TopicPosition(2, 9))
    world.accept(a_report(world, positions=ends))
    world.phases(QUORUM)
    assert tuple(topic_positions(world.rows)) == ends
    world.phases(BACK, KAFKA, SWITCHING)
    assert list(topic_positions(world.rows)) == []
    assert state(world) == Shadow(begun=world.offset)


def test_there_is_no_way_back_before_all_is_in_the_topic(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    world.accept(world.a_phase(BACK))
    outcome = world.put(world.a_phase(KAFKA))
    assert outcome.verdict is Verdict.CONFLICT
    assert "2 changes are not in Kafka's metadata topic yet" in outcome.message
    world.accept(a_report(world, world.offset - 2), world.a_phase(KAFKA))
    assert find_shadow(world.rows) is None


def test_a_shadow_that_is_given_up_has_no_way_back(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    world.accept(a_report(world, incomplete="partition 1 lost records"))
    outcome = world.put(world.a_phase(BACK))
    assert outcome.verdict is Verdict.CONFLICT
    assert "the move can't go back to it: partition 1 lost records" in outcome.message
    kept = outbox(world)
    world.copy(2, 100, 199, [(4, 100)])
    assert outbox(world) == kept, "no more is kept"
    assert world.verdict(a_report(world, incomplete="something else")) is Verdict.NO_EFFECT
    assert state(world).incomplete == "partition 1 lost records", "the first reason stays"


def test_more_than_the_most_gives_the_shadow_up_and_the_log_goes_on(
    world: MigrationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_rules, "OUTBOX_ROWS_MAX", 3)
    world.copy(1, 0, 99, [(4, 0)])
    world.copy(2, 100, 199, [(4, 100)])
    world.copy(3, 200, 299, [(4, 200)])
    assert len(outbox(world)) == 3
    assert "3 changes waited" in state(world).incomplete
    assert world.listed() == [1, 2, 3]
    assert world.verdict(world.a_phase(BACK)) is Verdict.CONFLICT
    world.accept(a_report(world, world.offset - 1))
    assert outbox(world) == []


def test_one_report_removes_a_bounded_number(
    world: MigrationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_rules, "REMOVED_MAX", 2)
    world.copy(1, 0, 99, [(4, 0)])
    world.copy(2, 100, 199, [(4, 100)])
    up_to = world.offset
    third = outbox(world)[2]
    world.accept(a_report(world, up_to))
    assert outbox(world)[0] == third
    assert (state(world).written_up_to, state(world).rows) == (third.offset - 1, 2)
    world.accept(a_report(world, up_to))
    assert outbox(world) == []


def test_what_waits_at_the_end_of_the_move_is_dropped(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    begun, up_to = state(world).begun, world.offset
    world.phases(DONE)
    assert len(outbox(world)) == 2
    world.accept(ShadowWritten(begun, TOPIC_ID, 3, up_to))
    assert outbox(world) == []
    assert find_shadow(world.rows) is None


def test_a_foreign_record_is_remembered(world: MigrationWorld) -> None:
    world.accept(a_report(world, foreign="a broker"))
    assert state(world).foreign == "a broker"
    assert world.verdict(a_report(world, foreign="another")) is Verdict.NO_EFFECT


def test_the_shadow_is_in_snapshots_and_given_up_after_a_restart(world: MigrationWorld) -> None:
    world.copy(1, 0, 99, [(4, 0)])
    world.accept(a_report(world, positions=(TopicPosition(1, 7),)))
    again = MemoryRows(from_proposals(to_proposals(world.rows.items())))
    assert again.items() == world.rows.items()
    begun = MemoryRows(restarted(again.items(), end_offset=world.offset + 1))
    found = find_shadow(begun)
    assert found is not None
    assert found.incomplete == RESTARTED


def test_rows_that_no_program_wrote_are_corrupt_data() -> None:
    shadow = Shadow(3, TOPIC_ID, 50, 9, 2, "lost", "foreign")
    row = encode_shadow(shadow)
    assert decode_shadow(row) == shadow
    for wrong in (b"", row[:-1], row + b"\0", b"\0\1" + row[2:], row[:-1] + b"\1\0\0"):
        with pytest.raises(CorruptData):
            decode_shadow(wrong)
    position = TopicPosition(3, 70, 9)
    assert decode_position(3, encode_position(position)) == position
    with pytest.raises(CorruptData):
        decode_position(3, encode_position(position)[:-1])
    assert decode_outbox(7, encode_outbox(5, b"value")) == OutboxRow(7, 5, b"value")
    with pytest.raises(CorruptData):
        decode_outbox(7, b"short")


def test_a_new_shadow_knows_no_topic() -> None:
    assert Shadow().topic_id == ZERO_UUID
