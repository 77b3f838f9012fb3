from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rlmm.apply.outcome import Verdict
from rlmm.partition_state import Mode, Totals
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.rows.reads import read_segment, read_totals
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentId,
    SegmentState,
)
from tests.rlmm.state_world import NODE_1, NODE_2, ORDERS, PAYMENTS, World, by, segment_uuid
from tests.rlmm.tombstones import is_segment_tombstone

COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = SegmentState.DELETE_SEGMENT_FINISHED
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED

Records = Callable[[World], MetadataRecord]


@pytest.fixture
def world() -> World:
    """Epoch 4 from 100; 1: 100-199 finished, 2: 200-299 started, 3: 90-199 going, 4: gone."""
    world = World()
    world.leads((4, 100))
    world.copy(1, 100, 199, [(4, 100)])
    world.accept(world.an_add(2, 200, 299, [(4, 200)]))
    world.accept(world.an_add(3, 200, 249, [(4, 200)]), world.a_delete(3, COPY_STARTED))
    world.accept(world.an_add(4, 200, 249, [(4, 200)]), world.a_delete(4, COPY_STARTED))
    world.accept(world.a_delete_finish(4))
    return world


def with_token(world: World, number: int) -> MetadataRecord:
    return replace(world.an_add(number, 300, 399, [(4, 300)]), token=world.token + 1)


ADDS: dict[str, tuple[Verdict, Records]] = {
    "a new one": (Verdict.ACCEPTED, lambda w: w.an_add(9, 200, 299, [(4, 200)])),
    "equal content again": (Verdict.NO_EFFECT, lambda w: w.an_add(2, 200, 299, [(4, 200)])),
    "broker and event time are no content": (
        Verdict.NO_EFFECT,
        lambda w: replace(
            w.an_add(2, 200, 299, [(4, 200)]), broker_id=7, event_timestamp_ms=5, token=-1
        ),
    ),
    "other content": (Verdict.CONFLICT, lambda w: w.an_add(2, 200, 298, [(4, 200)])),
    "a finished one": (Verdict.CONFLICT, lambda w: w.an_add(1, 100, 199, [(4, 100)])),
    "a tombstone": (Verdict.GONE, lambda w: w.an_add(4, 200, 249, [(4, 200)])),
    "not the token": (Verdict.FENCED, lambda w: with_token(w, 9)),
    "no token": (
        Verdict.FENCED,
        lambda w: replace(w.an_add(9, 200, 299, [(4, 200)]), token=-1),
    ),
    "another writer": (
        Verdict.FENCED,
        lambda w: replace(w.an_add(9, 200, 299, [(4, 200)]), writer=NODE_2),
    ),
    "no writer": (
        Verdict.FENCED,
        lambda w: replace(w.an_add(9, 200, 299, [(4, 200)]), writer=None),
    ),
    "another state": (
        Verdict.INVALID,
        lambda w: replace(w.an_add(9, 200, 299, [(4, 200)]), state=COPY_FINISHED),
    ),
    "a negative start": (Verdict.INVALID, lambda w: w.an_add(9, -1, 299, [(4, 200)])),
    "an end below the start": (Verdict.INVALID, lambda w: w.an_add(9, 200, 199, [(4, 200)])),
    "no offset": (Verdict.INVALID, lambda w: w.an_add(9, 200, 2**63 - 1, [(4, 200)])),
    "no epochs": (Verdict.INVALID, lambda w: w.an_add(9, 200, 299, [])),
    "epochs that fall": (Verdict.INVALID, lambda w: w.an_add(9, 200, 299, [(4, 200), (3, 250)])),
    "an epoch behind the end": (Verdict.INVALID, lambda w: w.an_add(9, 200, 299, [(4, 300)])),
    "a negative size": (
        Verdict.INVALID,
        lambda w: w.an_add(9, 200, 299, [(4, 200)], size_bytes=-1),
    ),
    "too many epochs": (
        Verdict.INVALID,
        lambda w: w.an_add(9, 0, 20_000, [(n, n) for n in range(10_001)]),
    ),
    "much custom metadata": (
        Verdict.INVALID,
        lambda w: replace(w.an_add(9, 200, 299, [(4, 200)]), custom_metadata=bytes(4097)),
    ),
}


@pytest.mark.parametrize("name", ADDS)
def test_adds(world: World, name: str) -> None:
    verdict, record = ADDS[name]
    judge(world, record(world), verdict)


def judge(world: World, record: MetadataRecord, verdict: Verdict) -> None:
    changed = world.changed_by(record)
    assert changed is (verdict is Verdict.ACCEPTED)
    assert world.verdict(record) is (Verdict.NO_EFFECT if changed else verdict)


def test_nothing_is_added_before_a_claim() -> None:
    world = World()
    assert world.verdict(world.an_add(1, 0, 9, [(0, 0)])) is Verdict.FENCED


FINISHES: dict[str, tuple[Verdict, Records]] = {
    "in place": (Verdict.ACCEPTED, lambda w: w.a_finish(2)),
    "again": (Verdict.NO_EFFECT, lambda w: w.a_finish(1)),
    "again without custom metadata": (
        Verdict.NO_EFFECT,
        lambda w: w.an_update(1, COPY_FINISHED),
    ),
    "again with other custom metadata": (
        Verdict.CONFLICT,
        lambda w: w.an_update(1, COPY_FINISHED, custom_metadata=b"other"),
    ),
    "by another node": (Verdict.FENCED, lambda w: by(w.a_finish(2), NODE_2)),
    "by a later life of the node": (
        Verdict.FENCED,
        lambda w: by(w.a_finish(2), replace(NODE_1, boot_counter=2)),
    ),
    "by nobody": (Verdict.FENCED, lambda w: replace(w.a_finish(2), writer=None)),
    "the token does not count": (
        Verdict.ACCEPTED,
        lambda w: replace(w.a_finish(2), token=-1),
    ),
    "one that is going": (Verdict.CONFLICT, lambda w: w.a_finish(3)),
    "a tombstone": (Verdict.GONE, lambda w: w.a_finish(4)),
    "never added": (Verdict.CONFLICT, lambda w: w.a_finish(9)),
    "of another partition": (
        Verdict.CONFLICT,
        lambda w: replace(w.a_finish(2), segment_id=RemoteLogSegmentId(PAYMENTS, segment_uuid(2))),
    ),
    "back to started": (Verdict.INVALID, lambda w: w.an_update(2, COPY_STARTED)),
    "much custom metadata": (
        Verdict.INVALID,
        lambda w: w.an_update(2, COPY_FINISHED, custom_metadata=bytes(5000)),
    ),
}


@pytest.mark.parametrize("name", FINISHES)
def test_copy_finished(world: World, name: str) -> None:
    verdict, record = FINISHES[name]
    judge(world, record(world), verdict)


def test_copy_finished_survives_an_epoch_bump_that_stays_on_the_node(world: World) -> None:
    world.accept(world.a_claim([(4, 100), (5, 300)]))
    world.accept(world.a_finish(2))


def test_copy_finished_is_fenced_once_another_node_claimed(world: World) -> None:
    finish = world.a_finish(2)
    world.claim((4, 100), (5, 300), node=NODE_2)
    judge(world, finish, Verdict.FENCED)
    judge(world, by(finish, NODE_2), Verdict.FENCED)


def test_copy_finished_outside_the_lineage_is_diverged(world: World) -> None:
    world.accept(world.a_claim([(4, 100), (5, 250)]))
    judge(world, world.a_finish(2), Verdict.DIVERGED)


@pytest.mark.parametrize(
    ("start", "end", "leader_epochs", "verdict"),
    [
        (200, 209, [(4, 200)], Verdict.ACCEPTED),
        (150, 209, [(4, 150)], Verdict.ACCEPTED),
        (100, 150, [(4, 100)], Verdict.ACCEPTED),
        (201, 209, [(4, 201)], Verdict.GAP),
        (200, 209, [(5, 200)], Verdict.DIVERGED),
        (90, 209, [(3, 90), (4, 100)], Verdict.ACCEPTED),  # its head is unknown to the lineage
        (200, 209, [(3, 200), (4, 205)], Verdict.GAP),  # 200-204 are of epoch 4 in the lineage
        (190, 209, [(4, 201)], Verdict.GAP),  # nobody could look up 200
    ],
)
def test_where_a_copy_may_lie(
    world: World, start: int, end: int, leader_epochs: list[tuple[int, int]], verdict: Verdict
) -> None:
    world.accept(world.an_add(9, start, end, leader_epochs))
    judge(world, world.a_finish(9), verdict)


def test_nothing_is_finished_before_the_log_start_is_known() -> None:
    world = World()
    world.claim((4, 100))
    world.accept(world.an_add(1, 100, 199, [(4, 100)]))
    judge(world, world.a_finish(1), Verdict.GAP)
    world.log_start(150, 4)
    world.accept(world.a_finish(1))
    assert world.state.next_offset == 200


def test_what_a_finished_copy_changes(world: World) -> None:
    world.accept(world.a_finish(2))
    row = read_segment(world.rows, segment_uuid(2))
    assert row is not None
    assert row.state is COPY_FINISHED
    assert row.finished_at == world.offset
    assert row.custom_metadata == b"checksums"
    assert world.state.highest_copied == (299, 4)
    assert world.state.next_offset == 300
    assert (world.state.segment_count, world.state.size_bytes) == (2, 2000)
    assert read_totals(world.rows) == Totals(
        copy_started=0, copy_finished=2, delete_started=1, size_bytes=2000, partitions=1
    )
    assert world.serving(4, 250) == 2


def test_a_copy_into_a_lost_range_shrinks_it(world: World) -> None:
    world.accept(world.a_finish(2))
    world.accept(world.a_lost_range(300, 399))
    world.copy(10, 320, 349, [(4, 320)])
    assert world.lost() == [(300, 319), (350, 399)]
    assert world.state.next_offset == 400
    world.copy(11, 250, 319, [(4, 250)])
    world.copy(12, 340, 405, [(4, 340)])
    assert world.lost() == []
    assert world.state.next_offset == 406


DELETES: dict[str, tuple[Verdict, Records]] = {
    "a failed copy": (Verdict.ACCEPTED, lambda w: w.a_delete(2, COPY_STARTED)),
    "again": (Verdict.NO_EFFECT, lambda w: w.a_delete(3, COPY_STARTED)),
    "again, expecting what it is": (Verdict.NO_EFFECT, lambda w: w.a_delete(3, DELETE_STARTED)),
    "clean-up of a finished one": (Verdict.CONFLICT, lambda w: w.a_delete(1, COPY_STARTED)),
    "retention of a started one": (Verdict.CONFLICT, lambda w: w.a_delete(2, COPY_FINISHED)),
    "expecting nothing": (Verdict.INVALID, lambda w: w.an_update(2, DELETE_STARTED)),
    "not the token": (
        Verdict.FENCED,
        lambda w: replace(w.a_delete(2, COPY_STARTED), token=w.token + 1),
    ),
    "other custom metadata": (
        Verdict.CONFLICT,
        lambda w: replace(w.a_delete(1), custom_metadata=b"other"),
    ),
    "a tombstone": (Verdict.GONE, lambda w: w.a_delete(4, COPY_STARTED)),
    "never added": (Verdict.CONFLICT, lambda w: w.a_delete(9, COPY_STARTED)),
    "what serves alone": (Verdict.IN_USE, lambda w: w.a_delete(1)),
}


@pytest.mark.parametrize("name", DELETES)
def test_delete_started(world: World, name: str) -> None:
    verdict, record = DELETES[name]
    judge(world, record(world), verdict)


@pytest.mark.parametrize(("log_start", "verdict"), [(199, Verdict.IN_USE), (200, Verdict.ACCEPTED)])
def test_a_segment_goes_once_log_start_has_passed_it(
    world: World, log_start: int, verdict: Verdict
) -> None:
    world.log_start(log_start, 4)
    judge(world, world.a_delete(1), verdict)


def test_a_segment_goes_once_others_serve_what_it_served(world: World) -> None:
    world.copy(5, 100, 149, [(4, 100)])
    judge(world, world.a_delete(1), Verdict.IN_USE)
    world.copy(6, 150, 249, [(4, 150)])
    assert world.serving(4, 120) == 1
    world.accept(world.a_delete(1))
    assert (world.serving(4, 120), world.serving(4, 199)) == (5, 6)


def test_a_diverged_segment_goes_once_nothing_in_the_lineage_is_served_by_it(world: World) -> None:
    world.accept(world.a_finish(2))
    world.claim((4, 100), (5, 250), node=NODE_2)
    judge(world, world.a_delete(2), Verdict.IN_USE)
    world.copy(5, 200, 269, [(4, 200), (5, 250)])
    world.accept(world.a_delete(2))
    assert (world.serving(4, 249), world.serving(5, 250)) == (5, 5)


def test_a_wholly_diverged_segment_may_go(world: World) -> None:
    world.accept(world.a_finish(2))
    world.claim((4, 100), (5, 200), node=NODE_2)
    world.accept(world.a_delete(2))


def test_a_delete_keeps_the_custom_metadata_and_the_highest_offset(world: World) -> None:
    world.log_start(200, 4)
    world.accept(world.a_delete(1))
    row = read_segment(world.rows, segment_uuid(1))
    assert row is not None
    assert row.custom_metadata == b"checksums"
    assert world.state.highest_copied == (199, 4)
    assert queries.highest_offset_for_epoch(world.rows, ORDERS, 4) == 199
    assert (world.state.segment_count, world.state.size_bytes) == (0, 0)
    assert world.serving(4, 150) is None


def test_a_failed_copy_may_bring_its_custom_metadata_with_the_delete(world: World) -> None:
    world.accept(replace(world.a_delete(2, COPY_STARTED), custom_metadata=b"too long"))
    row = read_segment(world.rows, segment_uuid(2))
    assert row is not None
    assert row.custom_metadata == b"too long"


DELETE_FINISHES: dict[str, tuple[Verdict, Records]] = {
    "started": (Verdict.ACCEPTED, lambda w: w.a_delete_finish(3)),
    "by any node, without a token": (
        Verdict.ACCEPTED,
        lambda w: replace(w.a_delete_finish(3), token=-1, writer=NODE_2),
    ),
    "a tombstone": (Verdict.NO_EFFECT, lambda w: w.a_delete_finish(4)),
    "a finished copy": (Verdict.CONFLICT, lambda w: w.a_delete_finish(1)),
    "a started copy": (Verdict.CONFLICT, lambda w: w.a_delete_finish(2)),
    "never added": (Verdict.CONFLICT, lambda w: w.a_delete_finish(9)),
}


@pytest.mark.parametrize("name", DELETE_FINISHES)
def test_delete_finished(world: World, name: str) -> None:
    verdict, record = DELETE_FINISHES[name]
    judge(world, record(world), verdict)


def test_what_is_left_of_a_deleted_segment_is_a_tombstone(world: World) -> None:
    world.accept(world.a_delete_finish(3))
    assert read_segment(world.rows, segment_uuid(3)) is None
    assert is_segment_tombstone(world.rows, segment_uuid(3))
    assert not is_segment_tombstone(world.rows, segment_uuid(9))
    assert world.listed() == [1, 2]
    assert read_totals(world.rows).delete_started == 0


def test_left_overs_are_what_somebody_has_to_end(world: World) -> None:
    left = queries.left_overs(world.rows, ORDERS)
    assert {(each.segment_id.id, each.state) for each in left} == {
        (segment_uuid(2), COPY_STARTED),
        (segment_uuid(3), DELETE_STARTED),
    }


def test_a_marked_partition_takes_no_copy_but_lets_segments_go(world: World) -> None:
    world.accept(world.a_step(MARKED))
    judge(world, world.an_add(9, 200, 299, [(4, 200)]), Verdict.CONFLICT)
    judge(world, world.a_finish(2), Verdict.CONFLICT)
    judge(world, world.an_add(2, 200, 299, [(4, 200)]), Verdict.NO_EFFECT)
    judge(world, world.a_delete_finish(3), Verdict.ACCEPTED)
    judge(world, world.a_delete(2, COPY_STARTED), Verdict.ACCEPTED)


def test_any_node_empties_a_partition_whose_deletion_started(world: World) -> None:
    world.delete(MARKED, STARTED)
    judge(world, world.an_add(9, 200, 299, [(4, 200)]), Verdict.GONE)
    judge(world, world.a_finish(2), Verdict.GONE)
    judge(world, replace(world.a_delete(1, COPY_STARTED), token=-1), Verdict.CONFLICT)
    judge(world, replace(world.a_delete(1), token=-1), Verdict.ACCEPTED)
    judge(world, replace(world.a_delete(2, COPY_STARTED), token=-1), Verdict.ACCEPTED)


@pytest.fixture
def delegated() -> World:
    world = World()
    world.claim((4, 100), mode=Mode.DELEGATED)
    return world


def test_in_delegated_mode_the_broker_decides_what_and_where(delegated: World) -> None:
    delegated.copy(1, 500, 599, [(9, 500)])
    delegated.accept(delegated.a_delete(1))
    assert delegated.state.highest_copied is None, "epoch 9 is not in the lineage"
    assert queries.highest_offset_for_epoch(delegated.rows, ORDERS, 9) is None
    delegated.claim((4, 100), (9, 500), mode=Mode.DELEGATED)
    assert queries.highest_offset_for_epoch(delegated.rows, ORDERS, 9) == 599


def test_in_delegated_mode_a_repeated_delete_succeeds(delegated: World) -> None:
    delegated.copy(1, 100, 199, [(4, 100)])
    delegated.accept(delegated.a_delete(1))
    again = replace(delegated.a_delete(1, DELETE_STARTED), custom_metadata=b"checksums")
    judge(delegated, again, Verdict.NO_EFFECT)


def test_in_delegated_mode_tokens_count_as_well(delegated: World) -> None:
    add = delegated.an_add(1, 100, 199, [(4, 100)])
    judge(delegated, replace(add, token=77), Verdict.FENCED)
    delegated.accept(add)
    judge(delegated, by(delegated.a_finish(1), NODE_2), Verdict.FENCED)
    judge(delegated, replace(delegated.a_delete(1, COPY_STARTED), token=77), Verdict.FENCED)


def test_in_delegated_mode_a_copy_ends_under_the_claim_that_its_end_names(delegated: World) -> None:
    """A broker's log may have been cut between two claims of its node; a node's own is compared
    with the lineage.
    """
    delegated.accept(delegated.an_add(1, 100, 199, [(4, 100)]))
    finish = delegated.a_finish(1)
    delegated.claim((4, 100), (5, 150), mode=Mode.DELEGATED)
    judge(delegated, finish, Verdict.FENCED)
    judge(delegated, replace(finish, token=-1), Verdict.FENCED)
    judge(delegated, replace(finish, token=delegated.token), Verdict.ACCEPTED)


def test_kafkas_careless_epoch_starts_are_taken_as_the_segments_start(delegated: World) -> None:
    delegated.copy(1, 150, 199, [(4, 0)])
    assert delegated.serving(4, 150) == 1
    assert delegated.serving(4, 149) is None


def test_as_much_custom_metadata_as_may_be(world: World) -> None:
    world.accept(replace(world.an_add(9, 200, 299, [(4, 200)]), custom_metadata=bytes(4096)))
