from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from kafka_formats.errors import InternalError, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Mode
from rlmm.rows import queries
from rlmm.rows.keys import segment_key
from rlmm.rows.reads import read_segment, read_totals
from rlmm.segment import PartitionDeleteState, SegmentState
from tests.rlmm.recomputed_state import number_of
from tests.rlmm.state_world import ORDERS, PAYMENTS, World, segment_uuid

COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED

LIFE_CYCLE = [
    (1, 0, 100, [(0, 0), (1, 20), (2, 80)]),
    (2, 101, 200, [(2, 101)]),
    (3, 201, 300, [(2, 201), (3, 240)]),
    (4, 250, 400, [(3, 250), (4, 370)]),
]


@pytest.fixture(params=[Mode.SIDECAR, Mode.DELEGATED])
def world(request: pytest.FixtureRequest) -> World:
    """Kafka's RemoteLogSegmentLifecycleTest."""
    world = World()
    world.leads((0, 0), (1, 20), (2, 80), (3, 240), (4, 370), mode=request.param)
    for number, start, end, leader_epochs in LIFE_CYCLE:
        world.copy(number, start, end, leader_epochs)
    return world


def test_kafkas_life_cycle_look_ups(world: World) -> None:
    found = {
        (1, 40): 1,
        (2, 110): 2,
        (3, 240): 3,
        (3, 250): 4,
        (4, 375): 4,
        (1, 110): None,
        (4, 401): None,
        (5, 301): None,
    }
    assert {each: world.serving(*each) for each in found} == found


def test_kafkas_life_cycle_highest_offsets_outlive_the_segments(world: World) -> None:
    def highest() -> list[int | None]:
        return [queries.highest_offset_for_epoch(world.rows, ORDERS, epoch) for epoch in range(6)]

    assert highest() == [19, 79, 239, 369, 400, None]
    world.log_start(101, 2)
    world.accept(world.a_delete(1))
    world.accept(world.a_delete_finish(1))
    assert highest() == [19, 79, 239, 369, 400, None]


def test_nothing_counts_as_copied_in_an_epoch_that_an_election_cut_off(world: World) -> None:
    """A follower with records of that epoch would delete what it has at these offsets later."""
    world.claim((0, 0), (1, 20), (9, 60), mode=world.state.mode)
    highest = [queries.highest_offset_for_epoch(world.rows, ORDERS, epoch) for epoch in range(10)]
    assert highest == [19, 59, *[None] * 8]


def test_an_answer_says_how_far_it_holds(world: World) -> None:
    def valid_until(epoch: int, offset: int) -> int:
        answer = queries.segment_for_offset(world.rows, ORDERS, epoch, offset)
        assert answer is not None
        return answer.valid_until

    assert [valid_until(*each) for each in ((0, 5), (2, 90), (3, 245), (4, 400))] == [
        19, 100, 249, 400
    ]  # fmt: skip


def test_following_valid_until_reads_every_offset_once(world: World) -> None:
    offset, read = 0, []
    lineage = world.state.lineage
    while offset <= 400:
        epoch = max(entry.epoch for entry in lineage if entry.start_offset <= offset)
        answer = queries.segment_for_offset(world.rows, ORDERS, epoch, offset)
        assert answer is not None
        read.append((offset, answer.valid_until, answer.metadata.segment_id.id[-1]))
        offset = answer.valid_until + 1
    assert read == [
        (0, 19, 1), (20, 79, 1), (80, 100, 1), (101, 200, 2), (201, 239, 3), (240, 249, 3),
        (250, 369, 4), (370, 400, 4),
    ]  # fmt: skip


def test_a_lineage_decides_which_offsets_are_served(world: World) -> None:
    def serves(first: int, last: int, *lineage: tuple[int, int]) -> bool:
        entries = tuple(EpochEntry(*each) for each in lineage)
        return queries.serves_any(world.rows, ORDERS, entries, first, last)

    assert serves(20, 79, (0, 0), (1, 20), (2, 80))
    assert not serves(20, 79, (0, 0), (2, 80))
    assert not serves(79, 79, (0, 0), (2, 79))
    assert serves(79, 80, (0, 0), (2, 79))
    assert not serves(401, 500, *world.state.lineage)


def test_a_hole_in_an_epoch_hides_no_transaction_index_behind_it() -> None:
    """An aborted transaction's marker may lie behind offsets that were lost."""
    world = World()
    world.leads((0, 0))
    world.accept(replace(world.an_add(1, 0, 99, [(0, 0)]), txn_index_empty=True), world.a_finish(1))
    world.accept(world.a_lost_range(100, 149))
    world.copy(2, 150, 199, [(0, 150)])

    def following(offset: int) -> int | None:
        found = queries.next_segment_with_txn_index(world.rows, ORDERS, 0, offset)
        return None if found is None else number_of(found.metadata)

    assert [following(offset) for offset in (0, 99, 100, 150, 199, 200)] == [2, 2, 2, 2, 2, None]
    world.claim((0, 0), (1, 180))
    assert [following(offset) for offset in (179, 180)] == [2, None], "a dead tail has none"


def test_segments_are_visible_by_state() -> None:
    """CacheSegmentWith each of the four states."""
    world = World()
    world.leads((0, 0))
    world.accept(world.an_add(1, 0, 99, [(0, 0)]))
    assert (world.serving(0, 50), world.listed(), world.listed(0)) == (None, [1], [1])
    assert queries.highest_offset_for_epoch(world.rows, ORDERS, 0) is None
    world.accept(world.a_finish(1))
    assert (world.serving(0, 50), world.listed(), world.listed(0)) == (1, [1], [1])
    world.log_start(100, 0)
    world.accept(world.a_delete(1))
    assert (world.serving(0, 50), world.listed(), world.listed(0)) == (None, [1], [1])
    world.accept(world.a_delete_finish(1))
    assert (world.serving(0, 50), world.listed(), world.listed(0)) == (None, [], [])
    assert queries.highest_offset_for_epoch(world.rows, ORDERS, 0) == 99


def test_segments_of_an_epoch_are_listed_by_start_offset_whatever_their_state() -> None:
    world = World()
    world.leads((0, 0))
    world.accept(world.an_add(1, 0, 4, [(0, 0)]))
    world.copy(2, 0, 10, [(0, 0)])
    world.copy(3, 11, 100, [(0, 11)])
    world.copy(4, 9, 150, [(0, 9)])
    world.accept(world.an_add(5, 151, 151, [(0, 151)]), world.an_add(6, 120, 130, [(0, 120)]))
    assert world.listed(0) == [1, 2, 4, 3, 6, 5]
    assert world.listed() == [1, 2, 4, 3, 6, 5]


def test_all_segments_are_listed_once_though_they_hold_several_epochs(world: World) -> None:
    assert world.listed() == [1, 2, 3, 4]
    assert world.listed(2) == [1, 2, 3]
    assert world.listed(3) == [3, 4]
    assert world.listed(9) == []
    world.accept(world.an_add(7, 90, 110, [(2, 90)]))
    assert world.listed() == [1, 7, 2, 3, 4]


@pytest.mark.parametrize("epoch", [None, 0, 2, 3, 9])
def test_a_listing_goes_on_behind_any_of_its_segments(world: World, epoch: int | None) -> None:
    world.accept(world.an_add(7, 90, 110, [(2, 90)]), world.an_add(8, 10, 110, [(0, 10), (2, 90)]))
    whole = list(queries.list_segments(world.rows, ORDERS, epoch))
    positions = [queries.list_position(each, epoch) for each in whole]
    assert positions == sorted(positions)
    for number, position in enumerate(positions, 1):
        rest = queries.list_segments(world.rows, ORDERS, epoch, after=position)
        assert list(rest) == whole[number:]


def test_a_listing_goes_on_where_its_last_segment_is_gone(world: World) -> None:
    whole = list(queries.list_segments(world.rows, ORDERS))
    first = queries.list_position(whole[0])
    gone = first._replace(segment=Uuid(bytes(15) + b"\xff"), start=first.start + 1)
    assert list(queries.list_segments(world.rows, ORDERS, after=gone)) == whole[1:]


def test_a_listing_survives_changes_made_while_it_is_read(world: World) -> None:
    listing = queries.list_segments(world.rows, ORDERS)
    first = next(listing)
    world.log_start(250, 3)
    world.accept(world.a_delete(2), world.a_delete_finish(2))
    rest = [each.segment_id.id[-1] for each in listing]
    assert first.segment_id.id[-1] == 1
    assert set(rest) >= {3, 4}


def test_transaction_indexes_are_looked_for_in_one_epoch() -> None:
    world = World()
    world.leads((0, 0), (1, 300))
    for number, (start, end, is_empty) in enumerate(
        [(0, 99, False), (100, 199, True), (200, 299, True), (300, 399, False)], 1
    ):
        epoch = 1 if start == 300 else 0
        added = world.an_add(number, start, end, [(epoch, start)])
        world.accept(replace(added, txn_index_empty=is_empty), world.a_finish(number))

    def found(epoch: int, offset: int) -> int | None:
        answer = queries.next_segment_with_txn_index(world.rows, ORDERS, epoch, offset)
        return None if answer is None else answer.metadata.segment_id.id[-1]

    assert found(0, 50) == 1
    assert found(0, 150) is None
    assert found(1, 300) == 4


def test_the_first_epoch_of_the_lineage_is_open_downwards() -> None:
    """A replica whose head was not cut brings a segment that begins below what was known."""
    world = World()
    world.leads((2, 396))
    world.copy(1, 380, 420, [(2, 380)])
    assert world.serving(2, 385) == 1


def test_segments_are_found_by_their_id(world: World) -> None:
    found = queries.segment(world.rows, ORDERS, segment_uuid(2))
    assert found is not None
    assert read_segment(world.rows, segment_uuid(2)) == found
    assert queries.segment(world.rows, PAYMENTS, segment_uuid(2)) is None
    assert queries.segment(world.rows, ORDERS, segment_uuid(9)) is None


def test_the_newest_topic_of_a_name_is_found() -> None:
    world = World()
    older = TopicIdPartition("orders", Uuid(b"\xff" * 16), 3)
    for partition in (older, ORDERS, PAYMENTS, replace(ORDERS, partition=4)):
        world.partition = partition
        world.claim((0, 0))
    assert queries.find_partition(world.rows, "orders", 3) == ORDERS
    assert queries.find_partition(world.rows, "orders", 5) is None
    assert queries.find_partition(world.rows, "order", 3) is None
    assert list(queries.partitions_of_topic(world.rows, "orders")) == [
        ORDERS, older, replace(ORDERS, partition=4)
    ]  # fmt: skip
    assert list(queries.partitions(world.rows))[-1] == PAYMENTS
    assert read_totals(world.rows).partitions == 4


OLD = TopicIdPartition("orders", Uuid(b"\xaa" * 16), 0)
NEW = replace(OLD, topic_id=Uuid(b"\x0b" * 16))


def numbers_of(world: World, topic: TopicIdPartition, *numbers: int) -> None:
    for number in numbers:
        world.partition = replace(topic, partition=number)
        world.claim((0, 0))


def test_by_name_nothing_of_an_older_topic_is_found() -> None:
    world = World()
    numbers_of(world, OLD, 0, 1, 2)
    numbers_of(world, NEW, 0, 1)
    assert queries.find_partition(world.rows, "orders", 1) == replace(NEW, partition=1)
    assert queries.find_partition(world.rows, "orders", 2) is None, "not claimed yet"
    numbers_of(world, OLD, 3)  # of a node that comes late
    assert queries.find_partition(world.rows, "orders", 3) is None
    numbers_of(world, NEW, 3)
    assert queries.find_partition(world.rows, "orders", 3) == replace(NEW, partition=3)


@pytest.mark.parametrize("first", [[0, 1], [1, 0]])
def test_an_older_topic_does_not_become_the_newest_while_it_goes(first: list[int]) -> None:
    world = World()
    numbers_of(world, OLD, *first)
    numbers_of(world, NEW, 0)
    numbers_of(world, OLD, 2)
    for number in (*first, 2):
        assert queries.newest_topic_id(world.rows, "orders") == NEW.topic_id
        world.partition = replace(OLD, partition=number)
        world.delete(*PartitionDeleteState)
    assert list(queries.partitions_of_topic(world.rows, "orders")) == [NEW]


def test_a_partition_of_another_name_is_not_known(world: World) -> None:
    assert queries.partition_state(world.rows, replace(ORDERS, topic="bills")) is None
    assert queries.partition_state(world.rows, PAYMENTS) is None


@pytest.mark.parametrize("topic", ["", "a\0b", "orders\0", "\ud800", "a" * 100_000, "a/b"])
def test_hostile_names_find_nothing(world: World, topic: str) -> None:
    assert queries.find_partition(world.rows, topic, 3) is None
    assert list(queries.partitions_of_topic(world.rows, topic)) == []
    assert queries.topic_policy(world.rows, topic).offset == -1


@pytest.mark.parametrize("number", [-1, -(2**31) - 1, 2**31, 2**63, 10**30])
def test_huge_and_negative_numbers_find_nothing_or_are_named(world: World, number: int) -> None:
    assert queries.segment_for_offset(world.rows, ORDERS, 0, number) is None
    questions: list[Callable[[], object]] = [
        lambda: queries.segment_for_offset(world.rows, ORDERS, number, 0),
        lambda: queries.highest_offset_for_epoch(world.rows, ORDERS, number),
        lambda: list(queries.list_segments(world.rows, ORDERS, number)) or None,
        lambda: queries.find_partition(world.rows, "orders", number),
        lambda: queries.partition_state(world.rows, replace(ORDERS, partition=number)),
    ]
    for question in questions:
        with suppress(InvalidRequest):
            assert question() is None


def test_coverage_without_a_segment_row_is_our_bug_and_no_empty_answer(world: World) -> None:
    world.rows.write([(segment_key(segment_uuid(2)), None)])
    with pytest.raises(InternalError):
        queries.segment_for_offset(world.rows, ORDERS, 2, 150)
