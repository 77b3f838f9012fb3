from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply import claims as apply_claims
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import LostOffsets, Mode
from rlmm.records.control_records import ClaimReset, PartitionClaim, PartitionModeChange
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.rows.reads import read_totals
from rlmm.segment import Incarnation, PartitionDeleteState
from tests.rlmm.state_world import NODE_1, NODE_2, ORDERS, START_MS, World, epochs

MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED
NODE_1_REBOOTED = replace(NODE_1, boot_counter=2)
NODE_1_NEW_DISK = Incarnation(1, Uuid(b"another-director"), 1)


@pytest.fixture
def world() -> World:
    """Node 1 leads at epoch 4, log start 100, segments 1 and 2 copied: 100-199, 200-299."""
    world = World()
    world.claim((4, 100))
    world.log_start(100, 4)
    world.copy(1, 100, 199, [(4, 100)])
    world.copy(2, 200, 299, [(4, 200)])
    return world


def test_the_first_claim_makes_the_partition_known() -> None:
    world = World()
    world.claim((2, 396))
    state = world.state
    assert state.claim is not None
    assert (state.claim.token, state.claim.leader_epoch) == (0, 2)
    assert (state.claim.incarnation, state.claim.claim_number) == (NODE_1, 1)
    assert state.claim.timestamp_ms == START_MS
    assert state.lineage == epochs((2, 396))
    assert (state.log_start_offset, state.next_offset) == (-1, -1)
    assert state.highest_copied is None
    assert list(queries.partitions(world.rows)) == [ORDERS]
    assert read_totals(world.rows).partitions == 1


Claims = Callable[[World], PartitionClaim]

ACCEPTED: dict[str, Claims] = {
    "a higher epoch of another node": lambda w: w.a_claim([(4, 100), (5, 300)], node=NODE_2),
    "a higher epoch of the same node": lambda w: w.a_claim([(4, 100), (6, 300)]),
    "the same epoch, higher claim number": lambda w: w.a_claim([(4, 100)], number=9),
    "the same epoch after a restart": lambda w: w.a_claim(
        [(4, 100)], node=NODE_1_REBOOTED, number=0
    ),
    "a checkpoint whose head is cut": lambda w: w.a_claim([(4, 250), (5, 300)], node=NODE_2),
    "a small cut": lambda w: w.a_claim([(4, 100), (5, 280)], node=NODE_2),
}

REFUSED: dict[str, tuple[Verdict, Claims]] = {
    "a lower epoch": (Verdict.FENCED, lambda w: w.a_claim([(3, 100)], node=NODE_2)),
    "a lower epoch of the claimant": (Verdict.FENCED, lambda w: w.a_claim([(3, 100)])),
    "the same epoch of another node": (
        Verdict.FENCED,
        lambda w: w.a_claim([(4, 100)], node=NODE_2),
    ),
    "the same epoch, another directory": (
        Verdict.FENCED,
        lambda w: w.a_claim([(4, 100)], node=NODE_1_NEW_DISK, number=9),
    ),
    "an older claim number": (Verdict.FENCED, lambda w: w.a_claim([(4, 100)], number=0)),
    "an older life of the node": (
        Verdict.FENCED,
        lambda w: w.a_claim([(4, 100)], node=replace(NODE_1, boot_counter=0), number=9),
    ),
    "the checkpoint ends below the epoch": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100)], epoch=5, node=NODE_2),
    ),
    "the checkpoint ends above the epoch": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (6, 300)], epoch=5, node=NODE_2),
    ),
    "no checkpoint": (Verdict.INVALID, lambda w: w.a_claim([], epoch=5, node=NODE_2)),
    "a checkpoint that falls": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (5, 90)], node=NODE_2),
    ),
    "a start no log has": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (5, 2**63 - 1)], node=NODE_2),
    ),
    "another mode": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (5, 300)], node=NODE_2, mode=Mode.DELEGATED),
    ),
    "a mode nobody leads in": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (5, 300)], mode=Mode.PAUSED),
    ),
    "a negative node": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (5, 300)], node=replace(NODE_1, node_id=-1)),
    ),
    "a negative claim number": (
        Verdict.INVALID,
        lambda w: w.a_claim([(4, 100), (5, 300)], number=-1),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_claims_that_are_accepted(world: World, name: str) -> None:
    claim = ACCEPTED[name](world)
    world.accept(claim)
    standing = world.state.claim
    assert standing is not None
    assert standing.token == world.offset
    assert standing.incarnation == claim.incarnation


@pytest.mark.parametrize("name", REFUSED)
def test_claims_that_are_refused_change_nothing(world: World, name: str) -> None:
    verdict, claim = REFUSED[name]
    assert not world.changed_by(claim(world))
    assert world.verdict(claim(world)) is verdict


def test_the_same_epoch_does_not_cut_the_lineage() -> None:
    world = World()
    world.leads((3, 0), (4, 100))
    assert world.verdict(world.a_claim([(2, 0), (4, 100)])) is Verdict.INVALID


@pytest.mark.parametrize(
    "partition",
    [
        replace(ORDERS, topic="a/b"),
        replace(ORDERS, topic=".."),
        replace(ORDERS, topic=""),
        replace(ORDERS, topic="a" * 250),
        replace(ORDERS, partition=-1),
        TopicIdPartition("orders", ZERO_UUID, 0),
    ],
)
def test_partitions_that_kafka_cannot_have_are_invalid(partition: TopicIdPartition) -> None:
    world = World(partition)
    assert world.verdict(world.a_claim([(0, 0)])) is Verdict.INVALID
    assert world.verdict(PartitionModeChange(partition, Mode.PAUSED, -1)) is Verdict.INVALID


def test_a_topic_id_keeps_its_name(world: World) -> None:
    other = replace(ORDERS, topic="bills")
    claim = replace(world.a_claim([(4, 100), (5, 300)]), partition=other)
    assert world.verdict(claim) is Verdict.INVALID
    assert queries.partition_state(world.rows, other) is None


def test_a_repeated_claim_has_no_effect_and_the_token_stays() -> None:
    world = World()
    claim = world.a_claim([(4, 100)])
    world.accept(claim)
    assert world.verdict(claim) is Verdict.NO_EFFECT
    assert world.state.claim is not None
    assert world.state.claim.token == 0


def test_a_claim_with_a_used_number_but_another_checkpoint_is_fenced() -> None:
    world = World()
    world.accept(world.a_claim([(4, 100)], number=1))
    assert world.verdict(world.a_claim([(3, 50), (4, 100)], number=1)) is Verdict.FENCED


def test_a_claim_merges_the_lineage_and_keeps_the_head(world: World) -> None:
    world.accept(world.a_claim([(4, 250), (5, 300)], node=NODE_2))
    assert world.state.lineage == epochs((4, 100), (5, 300))
    assert world.state.log_start_offset == 100
    assert world.state.next_offset == 300


def test_the_brokers_log_start_is_only_kept_for_information(world: World) -> None:
    claim = replace(world.a_claim([(4, 250), (5, 300)], node=NODE_2), local_log_start_offset=250)
    world.accept(claim)
    assert world.state.local_log_start_offset == 250
    assert world.state.log_start_offset == 100


def test_a_cut_takes_the_copied_tail_out_of_the_lineage(world: World) -> None:
    world.accept(world.a_claim([(4, 100), (5, 250)], node=NODE_2))
    state = world.state
    assert state.highest_copied == (249, 4)
    assert state.next_offset == 250
    assert state.log_start_offset == 100
    assert world.serving(4, 249) == 2
    assert world.serving(4, 250) is None
    answer = queries.segment_for_offset(world.rows, ORDERS, 4, 200)
    assert answer is not None
    assert answer.valid_until == 249, "the dead tail of a diverged segment is never served"
    assert state.lost_ranges == ()


def test_a_cut_below_log_start_takes_log_start_with_it(world: World) -> None:
    world.log_start(280, 4)
    world.accept(world.a_claim([(4, 100), (5, 250)], node=NODE_2))
    assert world.state.log_start_offset == 250
    assert world.state.next_offset == 250


def test_a_cut_forgets_the_lost_ranges_of_the_tail(world: World) -> None:
    world.accept(world.a_lost_range(300, 399))
    assert world.state.next_offset == 400
    world.accept(world.a_claim([(4, 100), (5, 350)], node=NODE_2))
    assert world.state.lost_ranges == (LostOffsets(300, 349, "gone"),)
    assert world.state.next_offset == 350
    world.accept(world.a_claim([(4, 100), (6, 300)], node=NODE_1))
    assert world.lost() == []
    assert world.state.next_offset == 300


@pytest.mark.parametrize("own", [200, 0])
def test_what_a_later_leader_has_below_a_log_start_is_not_passed_over(own: int) -> None:
    """Nothing was copied: where the log began and what was lost is one leader's word."""
    world = World()
    world.claim((4, 100))
    world.log_start(300, 4)
    world.accept(world.a_lost_range(300, 349))
    world.accept(replace(world.a_claim([(4, 100), (5, 400)]), local_log_start_offset=own))
    state = world.state
    assert (state.log_start_offset, state.next_offset, state.lost_ranges) == (-1, -1, ())


@pytest.mark.parametrize("own", [300, 301, -1])
def test_a_leader_that_has_nothing_more_leaves_the_log_start_where_it_is(own: int) -> None:
    world = World()
    world.claim((4, 100))
    world.log_start(300, 4)
    world.accept(replace(world.a_claim([(4, 100), (5, 400)]), local_log_start_offset=own))
    assert world.state.log_start_offset == 300


def test_a_log_start_stays_once_something_was_copied(world: World) -> None:
    world.accept(replace(world.a_claim([(4, 50), (5, 400)]), local_log_start_offset=50))
    assert (world.state.log_start_offset, world.state.next_offset) == (100, 300)


def test_holes_that_two_unclean_elections_leave_are_recorded_as_lost(world: World) -> None:
    """Epoch 4 is cut at 150, its diverged copy 200-299 is deleted, then epoch 4 comes back."""
    world.claim((4, 100), (5, 150), node=NODE_2)
    world.accept(world.a_delete(2))
    world.accept(world.a_claim([(4, 100), (6, 290)], node=NODE_1))
    state = world.state
    assert state.highest_copied == (289, 4)
    assert world.lost() == [(200, 289)]
    assert state.next_offset == 290
    world.token, world.node = world.offset, NODE_1
    world.copy(3, 200, 249, [(4, 200)])
    assert world.lost() == [(250, 289)]


def test_a_wrong_head_found_out_later_leaves_no_silent_hole() -> None:
    """Offsets 100-149 went to the tier as epoch 0; a broker with the whole history says epoch 1."""
    world = World()
    world.leads((0, 0))
    world.copy(1, 0, 149, [(0, 0)])
    world.claim((2, 150), node=NODE_2)
    world.copy(2, 150, 199, [(2, 150)])
    world.accept(world.a_claim([(0, 0), (1, 100), (2, 150), (3, 200)], node=NODE_1))
    assert world.lost() == [(100, 149)]
    assert world.state.highest_copied == (199, 2)
    assert world.serving(0, 99) == 1
    assert world.serving(0, 100) is None


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_claims, "LINEAGE_CUT_OFFSETS_MAX", 50)


@pytest.mark.usefixtures("small_limit")
def test_a_large_cut_waits_for_an_admin(world: World) -> None:
    assert world.verdict(world.a_claim([(4, 100), (5, 250)], node=NODE_2)) is Verdict.ACCEPTED
    world.token, world.node = world.offset, NODE_2
    suspect = world.a_claim([(4, 100), (6, 199)])
    assert world.verdict(suspect) is Verdict.SUSPECT
    assert not world.changed_by(suspect)
    world.reset_claim(cut_at=199)
    assert world.state.claim is None
    assert world.state.voided_claim is not None
    world.accept(suspect)
    assert world.state.next_offset == 199
    assert world.verdict(world.a_claim([(4, 100), (7, 100)])) is Verdict.SUSPECT, "once only"


@pytest.mark.usefixtures("small_limit")
def test_offsets_below_log_start_do_not_count_as_uncovered(world: World) -> None:
    world.log_start(290, 4)
    world.accept(world.a_claim([(4, 100), (5, 150)], node=NODE_2))


@pytest.mark.usefixtures("small_limit")
def test_a_head_that_becomes_known_takes_no_copies_above_it_out_of_the_lineage() -> None:
    """Epoch 7 began at 150. Local retention had cut that from the checkpoint of its first claim,
    which came late; another node has held these records.
    """
    world = World()
    world.leads((5, 0), (6, 100))
    world.copy(1, 0, 149, [(5, 0), (6, 100)])
    world.claim((7, 200))
    world.accept(world.a_lost_range(150, 199))
    world.copy(2, 200, 999, [(7, 200)])
    world.claim((7, 150), (8, 1_000), node=NODE_2)
    assert (world.lost(), world.state.next_offset) == ([(150, 199)], 1_000)
    world.copy(3, 150, 199, [(7, 150)])
    assert world.lost() == []
    assert world.verdict(world.a_claim([(7, 150), (9, 949)], node=NODE_1)) is Verdict.SUSPECT


def test_a_head_that_is_served_further_down_takes_no_later_epoch_out_of_the_lineage() -> None:
    world = World()
    world.claim((1, 300), (2, 400))
    world.log_start(100, 1)
    world.copy(1, 100, 299, [(1, 100)])
    world.claim((3, 500), node=NODE_2)
    assert world.state.lineage == epochs((1, 100), (2, 400), (3, 500))


def test_a_reset_lets_another_directory_in_at_the_same_epoch(world: World) -> None:
    claim = world.a_claim([(4, 100)], node=NODE_1_NEW_DISK)
    assert world.verdict(claim) is Verdict.FENCED
    world.reset_claim()
    assert world.verdict(world.a_claim([(3, 100)])) is Verdict.FENCED, "the epoch still bounds it"
    world.accept(claim)


@pytest.mark.usefixtures("small_limit")
def test_a_reset_is_for_the_cut_that_was_confirmed_whoever_claims_next(world: World) -> None:
    wiped = world.a_claim([(4, 100)], node=NODE_1_NEW_DISK)
    assert world.verdict(wiped) is Verdict.FENCED
    world.reset_claim()  # the admin read that the next claim cuts nothing
    # Before node 1 claims, a replica that has little comes to lead uncleanly.
    unforeseen = world.a_claim([(4, 100), (5, 150)], node=NODE_2)
    assert world.verdict(unforeseen) is Verdict.SUSPECT
    assert not world.changed_by(unforeseen)
    assert "the reset in force allows no cut" in world.put(unforeseen).message
    world.reset_claim(cut_at=160)  # another cut than the one it confirms
    assert world.verdict(unforeseen) is Verdict.SUSPECT
    assert world.state.reset_cut_at == 160
    world.accept(wiped)  # as was confirmed first
    assert (world.state.next_offset, world.state.reset_stands) == (300, False)
    assert world.verdict(unforeseen) is Verdict.SUSPECT, "the reset is used up, its bound too"


def test_a_claim_that_only_a_reset_lets_in_cuts_nothing_that_was_not_confirmed(
    world: World,
) -> None:
    """At a claimed epoch any cut takes a reset, however small."""
    world.claim((4, 100), (6, 290))
    same_epoch = world.a_claim([(4, 100), (5, 200), (6, 290)], node=NODE_1_NEW_DISK)
    for cut_at in (None, 201):
        world.reset_claim(cut_at)
        assert world.verdict(same_epoch) is Verdict.SUSPECT
    world.reset_claim(200)
    world.accept(same_epoch)


def test_a_reset_that_says_another_cut_replaces_the_one_that_stands(world: World) -> None:
    assert world.state.claim is not None
    token = world.state.claim.token
    for cut_at in (None, 150, 120, None):
        assert world.verdict(ClaimReset(ORDERS, token, cut_at)) is Verdict.ACCEPTED
        assert world.verdict(ClaimReset(ORDERS, token, cut_at)) is Verdict.NO_EFFECT
    assert world.verdict(ClaimReset(ORDERS, token, -1)) is Verdict.INVALID


def test_a_reset_names_the_claim_it_voids(world: World) -> None:
    assert world.state.claim is not None
    token = world.state.claim.token
    assert world.verdict(ClaimReset(ORDERS, token + 1)) is Verdict.CONFLICT
    assert world.verdict(ClaimReset(ORDERS, token)) is Verdict.ACCEPTED
    assert world.verdict(ClaimReset(ORDERS, token)) is Verdict.NO_EFFECT
    assert world.verdict(world.a_log_start(150, 4)) is Verdict.FENCED


def test_a_reset_of_nothing_is_refused() -> None:
    world = World()
    assert world.verdict(ClaimReset(ORDERS, 0)) is Verdict.FENCED
    world.accept(PartitionModeChange(ORDERS, Mode.SIDECAR, -1))
    assert world.verdict(ClaimReset(ORDERS, -1)) is Verdict.CONFLICT


def test_a_mode_change_voids_the_claim(world: World) -> None:
    change = PartitionModeChange(ORDERS, Mode.PAUSED, world.state.mode_offset)
    world.accept(change)
    assert world.state.mode is Mode.PAUSED
    assert world.state.claim is None
    assert world.verdict(change) is Verdict.NO_EFFECT
    assert world.verdict(world.an_add(3, 300, 399, [(4, 300)])) is Verdict.FENCED
    assert world.verdict(world.a_claim([(4, 100)])) is Verdict.INVALID
    world.mode(Mode.SIDECAR)
    assert world.verdict(world.a_claim([(4, 100)], number=1)) is Verdict.FENCED, "an old number"
    world.accept(world.a_claim([(4, 100)]))


def test_a_mode_change_names_the_one_it_replaces(world: World) -> None:
    assert world.verdict(PartitionModeChange(ORDERS, Mode.PAUSED, 7)) is Verdict.CONFLICT
    assert world.verdict(PartitionModeChange(ORDERS, Mode.SIDECAR, 7)) is Verdict.NO_EFFECT


def test_a_mode_may_come_before_the_first_claim() -> None:
    world = World()
    assert world.verdict(PartitionModeChange(ORDERS, Mode.DELEGATED, 5)) is Verdict.CONFLICT
    world.accept(PartitionModeChange(ORDERS, Mode.DELEGATED, -1))
    assert world.verdict(world.a_claim([(0, 0)])) is Verdict.INVALID
    world.accept(world.a_claim([(0, 0)], mode=Mode.DELEGATED))
    assert read_totals(world.rows).partitions == 1


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ([MARKED], Verdict.CONFLICT),
        ([MARKED, STARTED], Verdict.GONE),
        ([MARKED, STARTED, FINISHED], Verdict.GONE),
    ],
)
def test_nobody_claims_a_partition_that_goes(
    steps: list[PartitionDeleteState], verdict: Verdict
) -> None:
    world = World()
    world.leads((4, 100))
    world.delete(*steps)
    records: list[MetadataRecord] = [
        world.a_claim([(4, 100), (5, 200)]),
        PartitionModeChange(ORDERS, Mode.PAUSED, 0),
        ClaimReset(ORDERS, 0),
    ]
    for record in records:
        assert not world.changed_by(record)
        assert world.verdict(record) is verdict


def test_a_checkpoint_has_as_many_entries_as_a_claim_may_have(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_claims, "LINEAGE_EPOCHS_MAX", 3)
    world.claim((4, 100), (5, 300), (6, 310))
    one_more = world.a_claim([(4, 100), (5, 300), (6, 310), (7, 320)])
    assert world.verdict(one_more) is Verdict.INVALID


def test_a_mode_that_the_first_record_of_all_sets_binds_the_first_claim() -> None:
    world = World()
    world.accept(PartitionModeChange(ORDERS, Mode.DELEGATED, -1))
    assert world.state.mode_offset == 0
    assert world.verdict(world.a_claim([(4, 100)])) is Verdict.INVALID
    world.claim((4, 100), mode=Mode.DELEGATED)
