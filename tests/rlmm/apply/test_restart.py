"""After a restart from a snapshot: claims void, nothing deleted, what the store holds recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import Mode, Restart
from rlmm.records.control_records import (
    FeatureLevel,
    OffsetsSkipped,
    PartitionAdopted,
    Reconciled,
    SegmentMissing,
)
from rlmm.records.records import MetadataRecord
from rlmm.rows import keys
from rlmm.rows.reads import read_restart, read_segment, read_totals
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows
from rlmm.segment import Incarnation, PartitionDeleteState, SegmentState
from tests.rlmm.state_world import NODE_1, NODE_2, ORDERS, World, segment_uuid

ANEW = Incarnation(1, Uuid(b"directory-anew-1"), 1)
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED
EPOCHS = ((2, 100), (4, 150))


def restart(world: World) -> World:
    """The state of a cluster that starts from a snapshot of this one."""
    anew = World(world.partition)
    rows = restarted(iter(world.rows.items()), end_offset=world.offset + 1)
    anew.rows = MemoryRows(list(rows))
    anew.offset, anew.time_ms = world.offset, world.time_ms
    anew.node = ANEW
    return anew


@pytest.fixture
def before() -> World:
    """Copied 100-199 and 200-299; 300-399 is being copied."""
    world = World()
    world.leads(*EPOCHS)
    world.copy(1, 100, 199, [(2, 100), (4, 150)])
    world.copy(2, 200, 299, [(4, 200)])
    world.accept(world.an_add(3, 300, 399, [(4, 300)]))
    return world


@pytest.fixture
def world(before: World) -> World:
    return restart(before)


def adopted(world: World) -> PartitionAdopted:
    return PartitionAdopted(world.partition, world.token)


def missing(world: World, number: int) -> SegmentMissing:
    row = read_segment(world.rows, segment_uuid(number))
    assert row is not None
    return SegmentMissing(world.partition, segment_uuid(number), row.finished_at)


def reconciled(world: World) -> Reconciled:
    found = read_restart(world.rows)
    assert found is not None
    return Reconciled(found.offset)


def back_in_service(world: World) -> None:
    world.claim(*EPOCHS, node=ANEW)
    world.accept(adopted(world), reconciled(world))


def test_all_claims_are_void_and_the_rest_is_as_it_was(before: World, world: World) -> None:
    old, new = before.state, world.state
    assert new == replace(old, claim=None, voided_claim=old.claim, adopting=True)
    assert read_totals(world.rows) == read_totals(before.rows)
    assert world.serving(2, 120) == 1
    assert read_restart(world.rows) == Restart(before.offset + 1)
    changed = {key for key, _ in set(world.rows.items()) ^ set(before.rows.items())}
    assert changed == {keys.RESTART_KEY, keys.partition_key(ORDERS)}
    assert old.claim is not None
    zombie = replace(world.an_add(9, 300, 399, [(4, 300)]), token=old.claim.token)
    assert world.verdict(zombie) is Verdict.FENCED


def test_the_rows_stay_in_key_order_and_a_second_restart_begins_anew(world: World) -> None:
    back_in_service(world)
    again = restart(world)
    items = list(restarted(iter(world.rows.items()), end_offset=world.offset + 1))
    assert items == sorted(items)
    assert again.state.adopting
    assert read_restart(again.rows) == Restart(world.offset + 1)
    assert list(restarted([], end_offset=7)) == [(keys.RESTART_KEY, (7).to_bytes(8) + b"\xff" * 8)]


def test_a_mark_for_deletion_is_void_since_its_undo_may_be_younger_than_the_snapshot(
    before: World,
) -> None:
    before.accept(before.a_step(MARKED))
    marked = before.state
    world = restart(before)
    assert marked.delete_offset >= 0
    assert world.state.delete_offset == marked.delete_offset  # nobody infers a mark from absence
    assert (world.state.delete_state, world.state.delete_marked_at_ms) == (None, -1)
    back_in_service(world)
    assert world.verdict(world.a_step(STARTED)) is Verdict.CONFLICT
    world.accept(world.a_step(MARKED))


def test_any_node_may_claim_at_the_same_epoch_once(world: World) -> None:
    world.claim(*EPOCHS, node=NODE_2)  # whose directory the snapshot never heard of
    assert world.verdict(world.a_claim(EPOCHS, node=ANEW)) is Verdict.FENCED


def test_a_lower_epoch_and_another_lineage_at_the_same_epoch_stay_refused(world: World) -> None:
    assert world.verdict(world.a_claim([(2, 100), (3, 150)])) is Verdict.FENCED
    other = world.a_claim([(2, 100), (3, 140), (4, 150)], node=ANEW)
    assert world.verdict(other) is Verdict.INVALID


def test_a_restart_allows_no_cut_that_an_admin_would_have_to_allow(
    before: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlmm.apply.claims.LINEAGE_CUT_OFFSETS_MAX", 50)
    before.reset_claim()
    world = restart(before)
    assert world.verdict(world.a_claim([(2, 100), (5, 150)], node=ANEW)) is Verdict.SUSPECT


def test_nothing_is_deleted_before_the_reconciliation(world: World) -> None:
    world.claim(*EPOCHS, node=ANEW)
    world.accept(adopted(world))
    world.log_start(300, 4)
    deletes: list[MetadataRecord] = [
        world.a_delete(1),
        world.a_delete(3, SegmentState.COPY_SEGMENT_STARTED),
    ]
    for record in deletes:
        outcome = world.put(record)
        assert outcome.verdict is Verdict.CONFLICT
        assert "strandline reconcile" in outcome.message
    world.accept(reconciled(world), *deletes)
    world.accept(world.a_delete_finish(1))


def test_what_was_being_deleted_waits_too(before: World) -> None:
    before.accept(before.a_delete(3, SegmentState.COPY_SEGMENT_STARTED))
    world = restart(before)
    assert world.verdict(world.a_delete_finish(3)) is Verdict.CONFLICT
    world.accept(reconciled(world), world.a_delete_finish(3))


def test_a_partition_may_be_marked_but_not_deleted(world: World) -> None:
    world.accept(world.a_step(MARKED))
    assert world.verdict(world.a_step(STARTED)) is Verdict.CONFLICT
    world.accept(reconciled(world), world.a_step(STARTED))
    # It goes without ever being adopted: it is its objects' end, whoever's row they have.
    for number in (1, 2, 3):
        row = read_segment(world.rows, segment_uuid(number))
        assert row is not None
        world.accept(world.a_delete(number, row.state), world.a_delete_finish(number))
    world.accept(world.a_step(FINISHED))
    assert world.rows.get(keys.adopted_key(ORDERS)) is None


def test_a_partition_that_went_leaves_no_row_of_its_adoption(world: World) -> None:
    back_in_service(world)
    assert world.rows.get(keys.adopted_key(ORDERS)) is not None
    world.delete(MARKED, STARTED)
    for number in (1, 2, 3):
        row = read_segment(world.rows, segment_uuid(number))
        assert row is not None
        world.accept(world.a_delete(number, row.state), world.a_delete_finish(number))
    world.accept(world.a_step(FINISHED))
    assert world.rows.get(keys.adopted_key(ORDERS)) is None


def test_the_claimant_finishes_what_the_predecessor_uploaded(world: World) -> None:
    assert world.verdict(world.a_finish(3)) is Verdict.FENCED  # nobody claimed it yet
    world.claim(*EPOCHS, node=ANEW)
    world.node = NODE_1
    assert world.verdict(world.a_finish(3)) is Verdict.FENCED  # the writer of old is nobody now
    world.node = ANEW
    world.accept(world.a_finish(3))
    world.copy(4, 400, 499, [(4, 400)])  # unknown to the snapshot: added and finished
    assert world.state.next_offset == 500
    world.accept(adopted(world))
    assert not world.state.adopting


def test_once_adopted_a_row_is_finished_by_its_own_writer_only(world: World) -> None:
    world.claim(*EPOCHS, node=ANEW)
    world.accept(adopted(world))
    assert world.verdict(world.a_finish(3)) is Verdict.FENCED


@pytest.mark.parametrize(
    ("start", "leader_epochs", "verdict"),
    [
        (401, [(4, 401)], Verdict.GAP),
        (300, [(5, 300)], Verdict.DIVERGED),
        (300, [(3, 300)], Verdict.DIVERGED),
    ],
)
def test_what_is_adopted_lies_in_the_lineage_and_leaves_no_gap(
    world: World, start: int, leader_epochs: list[tuple[int, int]], verdict: Verdict
) -> None:
    world.claim(*EPOCHS, node=ANEW)
    world.accept(world.an_add(9, start, 499, leader_epochs))
    assert world.verdict(world.a_finish(9)) is verdict


def test_left_overs_stay_until_the_partition_is_adopted(world: World) -> None:
    world.accept(reconciled(world))
    world.claim(*EPOCHS, node=ANEW)
    record = world.a_delete(3, SegmentState.COPY_SEGMENT_STARTED)
    assert world.verdict(record) is Verdict.CONFLICT
    world.accept(adopted(world), record)


def test_an_adoption_ends_once_by_the_claimant(world: World) -> None:
    assert world.verdict(adopted(world)) is Verdict.FENCED
    world.claim(*EPOCHS, node=ANEW)
    assert world.verdict(PartitionAdopted(ORDERS, world.token - 1)) is Verdict.FENCED
    world.accept(adopted(world))
    assert world.verdict(adopted(world)) is Verdict.NO_EFFECT
    world.claim((2, 100), (4, 150), (6, 300), node=NODE_2)
    assert not world.state.adopting


def test_a_log_start_of_nothing_copied_is_said_anew_by_a_leader_whose_log_begins_lower() -> None:
    """The adoption begins at the lowest offset that broker or store has, if none is recorded."""
    before = World()
    before.claim((4, 100))
    before.log_start(300, 4)
    world = restart(before)
    world.accept(replace(world.a_claim([(4, 100), (5, 400)]), local_log_start_offset=200))
    state = world.state
    assert (state.adopting, state.log_start_offset, state.next_offset) == (True, -1, -1)


def test_log_start_follows_what_the_predecessor_retained_away(world: World) -> None:
    world.claim(*EPOCHS, node=ANEW)
    world.accept(adopted(world), missing(world, 1))
    assert world.state.log_start_offset == 200
    assert world.serving(2, 120) is None
    assert world.lost() == []
    assert world.state.segment_count == 1
    world.accept(missing(world, 2))
    assert world.state.log_start_offset == 300
    assert (world.state.next_offset, world.state.size_bytes) == (300, 0)


def test_log_start_follows_once_nothing_is_left_to_be_adopted(world: World) -> None:
    world.accept(missing(world, 2), missing(world, 1))
    assert (world.state.log_start_offset, world.state.next_offset) == (100, 300)
    assert world.lost() == [(100, 149), (150, 199), (200, 299)]
    back_in_service(world)
    assert (world.state.log_start_offset, world.lost()) == (300, [])


def test_a_copy_that_replaced_a_missing_one_is_adopted_and_stays(world: World) -> None:
    world.accept(missing(world, 1), missing(world, 2))
    world.claim(*EPOCHS, node=ANEW)
    world.copy(7, 150, 199, [(4, 150)])  # of the repair
    world.accept(adopted(world))
    assert (world.state.log_start_offset, world.lost()) == (150, [(200, 299)])
    assert world.serving(4, 150) == 7


def test_what_is_missing_above_is_lost_until_it_is_copied_again(world: World) -> None:
    world.accept(missing(world, 2))
    assert (world.state.log_start_offset, world.lost()) == (100, [(200, 299)])
    assert world.state.next_offset == 300
    back_in_service(world)
    world.copy(8, 200, 299, [(4, 200)])  # by a node whose broker has it still
    assert world.lost() == []


def test_what_another_segment_serves_is_not_lost(before: World) -> None:
    before.copy(7, 150, 299, [(4, 150)])
    world = restart(before)
    world.accept(missing(world, 2))
    assert world.lost() == []
    assert world.serving(4, 250) == 7


def test_in_delegated_mode_the_broker_says_where_the_log_begins(before: World) -> None:
    before.mode(Mode.DELEGATED)
    world = restart(before)
    world.accept(missing(world, 1))
    assert (world.state.log_start_offset, world.lost()) == (100, [])


def test_only_finished_segments_of_the_snapshot_are_missing_and_only_before(world: World) -> None:
    record = missing(world, 1)
    for wrong in (
        replace(record, finished_at=record.finished_at + 1),
        replace(record, segment=segment_uuid(77)),
        missing(world, 3),
    ):
        assert world.verdict(wrong) is Verdict.CONFLICT
    world.claim(*EPOCHS, node=ANEW)
    world.copy(4, 300, 399, [(4, 300)])
    assert world.verdict(missing(world, 4)) is Verdict.CONFLICT
    world.accept(record)
    assert world.verdict(record) is Verdict.NO_EFFECT
    other = missing(world, 2)
    world.accept(reconciled(world))
    assert world.verdict(other) is Verdict.CONFLICT


def test_a_reconciliation_names_the_restart_it_looked_at(world: World) -> None:
    record = reconciled(world)
    assert world.verdict(Reconciled(record.restart_offset - 1)) is Verdict.CONFLICT
    world.accept(record)
    assert world.verdict(record) is Verdict.NO_EFFECT
    found = read_restart(world.rows)
    assert found is not None
    assert found.is_reconciled


def test_a_cluster_that_began_empty_has_nothing_to_reconcile(before: World) -> None:
    assert not before.state.adopting
    for record in (adopted(before), Reconciled(0), missing(before, 1)):
        assert before.verdict(record) is Verdict.CONFLICT


def test_what_a_broker_that_tiers_lacks_can_be_lost_while_its_partition_is_adopted() -> None:
    before = World()
    before.claim(*EPOCHS, mode=Mode.DELEGATED)
    before.copy(1, 100, 199, [(2, 100), (4, 150)])
    world = restart(before)
    world.claim(*EPOCHS, node=ANEW, mode=Mode.DELEGATED)
    assert world.verdict(world.a_lost_range(200, 299)) is Verdict.CONFLICT, "feature level 1"
    world.accept(FeatureLevel(2, -1))
    assert world.verdict(world.a_lost_range(210, 299)) is Verdict.CONFLICT, "at the next offset"
    skipped = OffsetsSkipped(world.partition, world.token, 200, 299, "gone")
    assert world.verdict(skipped) is Verdict.CONFLICT
    world.accept(world.a_lost_range(200, 299))
    assert (world.lost(), world.state.next_offset) == ([(200, 299)], 300)
    world.accept(adopted(world))
    assert world.verdict(world.a_lost_range(300, 310)) is Verdict.CONFLICT, "the broker decides"
    world.copy(2, 250, 299, [(4, 250)])
    assert world.lost() == [(200, 249)]
