"""Which process has a node id, and what becomes of the claims of the one that had it before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlmm.apply.nodes import PAST_DIRECTORIES_MAX
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import Mode
from rlmm.records.control_records import (
    ClaimReset,
    FeatureLevel,
    NodeContested,
    NodeRegistration,
    NodeRemoved,
    NodeSilence,
    NodeStopped,
    PartitionModeChange,
)
from rlmm.records.node_facts import OWN_TAGS_FROM, NodeFacts, ReadAddress
from rlmm.rows.feature_level import REJOINING_LEVEL
from rlmm.rows.nodes import (
    Liveness,
    RegisteredNode,
    all_nodes,
    decode_node,
    encode_node,
    find_node,
)
from rlmm.segment import Incarnation
from tests.rlmm.state_world import NODE_1, NODE_2, START_MS, World

WIPED = Incarnation(1, Uuid(b"another-director"), 1)


@pytest.fixture
def world() -> World:
    """Node 1 registered and leads at epoch 4, with a copy under way and one finished."""
    world = World()
    world.accept(NodeRegistration(NODE_1))
    world.claim((4, 100))
    world.log_start(100, 4)
    world.copy(1, 100, 199, [(4, 100)])
    world.accept(world.an_add(2, 200, 299, [(4, 200)]))
    return world


def node(world: World) -> RegisteredNode:
    found = find_node(world.rows, 1)
    assert found is not None
    return found


def test_a_wiped_disk_takes_the_claims_of_its_node_over_at_the_same_epoch(world: World) -> None:
    claim = world.a_claim([(4, 100)], node=WIPED)
    assert world.verdict(claim) is Verdict.FENCED, "it did not register"
    world.accept(NodeRegistration(WIPED))
    assert (world.state.claim, world.state.voided_claim is None) == (None, False)
    world.accept(claim)
    world.token, world.node = world.offset, WIPED
    assert world.state.claim is not None
    assert world.state.claim.incarnation == WIPED
    assert world.state.next_offset == 200
    world.copy(3, 200, 299, [(4, 200)])


def test_the_old_token_is_void_at_once_whatever_it_is_used_for(world: World) -> None:
    add, finish = world.an_add(3, 200, 299, [(4, 200)]), world.a_finish(2)
    lost, start, gone = world.a_lost_range(200, 210), world.a_log_start(150, 4), world.a_delete(1)
    world.accept(NodeRegistration(WIPED))
    for record in (add, finish, lost, start, gone):
        assert world.verdict(record) is Verdict.FENCED, record


def test_nobody_else_gets_in_at_that_epoch_by_a_registration(world: World) -> None:
    world.accept(NodeRegistration(WIPED), NodeRegistration(NODE_2))
    assert world.verdict(world.a_claim([(4, 100)], node=NODE_2)) is Verdict.FENCED
    assert world.verdict(world.a_claim([(4, 100)], number=9)) is Verdict.FENCED, "the old process"
    assert world.verdict(world.a_claim([(5, 100)], number=9)) is Verdict.FENCED, "at any epoch"
    world.accept(world.a_claim([(4, 100), (5, 300)], node=NODE_2))


def test_a_directory_is_remembered_once(world: World) -> None:
    world.accept(NodeRegistration(WIPED), NodeRegistration(replace(NODE_1, boot_counter=2)))
    assert node(world).past == ((WIPED.directory_id, 1),)


def test_another_life_of_the_same_directory_takes_nothing_away(world: World) -> None:
    world.accept(NodeRegistration(replace(NODE_1, boot_counter=2)))
    assert world.state.claim is not None
    world.accept(world.a_finish(2))
    assert node(world).offset < node(world).boot_offset


def test_what_registers_first_takes_over_from_a_directory_that_never_did() -> None:
    world = World()
    world.claim((4, 100))
    world.accept(NodeRegistration(WIPED))
    assert world.state.claim is None
    world.accept(world.a_claim([(4, 100)], node=WIPED))


def test_the_first_registration_of_the_claimant_itself_voids_nothing() -> None:
    world = World()
    world.claim((4, 100))
    world.accept(NodeRegistration(NODE_1))
    assert world.state.claim is not None


@pytest.mark.parametrize("late", [NODE_1, replace(NODE_1, boot_counter=0)])
def test_a_registration_that_arrives_late_changes_nothing(world: World, late: Incarnation) -> None:
    world.accept(NodeRegistration(WIPED))
    assert world.verdict(NodeRegistration(late)) is Verdict.FENCED
    assert world.verdict(NodeRegistration(WIPED)) is Verdict.NO_EFFECT
    assert node(world).directory_id == WIPED.directory_id


def test_a_directory_that_comes_back_has_nothing_of_what_it_claimed_before(world: World) -> None:
    back = replace(NODE_1, boot_counter=2)
    world.accept(NodeRegistration(WIPED), NodeRegistration(back))
    assert world.state.claim is None
    assert world.verdict(world.a_finish(2)) is Verdict.FENCED
    world.accept(world.a_claim([(4, 100)], node=back, number=0))


def test_two_living_processes_with_one_node_id_both_write_nothing_more(world: World) -> None:
    world.accept(NodeRegistration(WIPED))
    world.claim((4, 100), node=WIPED)
    world.accept(NodeContested(NODE_1, node(world).boot_offset))
    assert node(world).contested
    assert world.state.claim is None
    assert world.verdict(world.a_log_start(150, 4)) is Verdict.FENCED
    for incarnation in (NODE_1, WIPED):
        claim = world.a_claim([(4, 100), (5, 300)], node=incarnation)
        assert world.verdict(claim) is Verdict.FENCED


@pytest.mark.parametrize("first", [WIPED, NODE_1])
def test_whichever_of_two_is_started_anew_goes_on(world: World, first: Incarnation) -> None:
    world.accept(NodeRegistration(WIPED), NodeContested(NODE_1, world.offset + 1))
    again = replace(first, boot_counter=2)
    world.accept(NodeRegistration(again), world.a_claim([(4, 100)], node=again))
    assert not node(world).contested


def test_a_contest_is_for_a_process_that_was_replaced_by_the_one_it_names(world: World) -> None:
    first = node(world).boot_offset
    assert world.verdict(NodeContested(WIPED, first)) is Verdict.CONFLICT, "it never registered"
    assert world.verdict(NodeContested(NODE_1, first)) is Verdict.CONFLICT, "it has the id"
    assert world.verdict(NodeContested(NODE_2, first)) is Verdict.CONFLICT, "another node"
    world.accept(NodeRegistration(WIPED))
    taken = node(world).boot_offset
    assert world.verdict(NodeContested(NODE_1, first)) is Verdict.CONFLICT, "an older one"
    again = replace(WIPED, boot_counter=2)
    world.accept(NodeRegistration(again))
    assert world.verdict(NodeContested(NODE_1, taken)) is Verdict.CONFLICT, "started anew since"
    contest = NodeContested(NODE_1, node(world).boot_offset)
    world.accept(contest)
    assert world.verdict(contest) is Verdict.NO_EFFECT


@pytest.mark.parametrize(
    "nobody",
    [replace(NODE_1, node_id=-1), replace(NODE_1, boot_counter=-1), Incarnation(1, ZERO_UUID, 1)],
)
def test_an_incarnation_that_no_node_has_is_invalid(world: World, nobody: Incarnation) -> None:
    assert world.verdict(NodeRegistration(nobody)) is Verdict.INVALID
    assert world.verdict(NodeContested(nobody, 0)) is Verdict.CONFLICT


def test_a_claim_that_was_voided_otherwise_is_reset_and_set_as_before(world: World) -> None:
    token = world.token
    world.accept(NodeRegistration(WIPED), ClaimReset(world.partition, token))
    assert world.state.reset_stands
    world.accept(PartitionModeChange(world.partition, Mode.PAUSED, world.state.mode_offset))


def test_a_row_keeps_what_is_not_known_yet_and_forgets_the_oldest_directories() -> None:
    world = World()
    tags = ((9, b"new"),)
    for number in range(PAST_DIRECTORIES_MAX + 3):
        directory = Uuid(b"directory-%06d" % number)
        world.accept(NodeRegistration(Incarnation(1, directory, 1), unknown_tags=tags))
    found = node(world)
    assert found.unknown_tags == tags
    assert found.timestamp_ms == START_MS
    assert len(found.past) == PAST_DIRECTORIES_MAX
    assert decode_node(1, encode_node(found)) == found


def test_the_facts_of_a_node_are_those_of_its_latest_start() -> None:
    world = World()
    other = replace(NODE_1, node_id=7, directory_id=Uuid(b"directory-of-a-7"))
    first = NodeFacts(ReadAddress("replica-1", 19_092, "zone a"))
    world.accept(NodeRegistration(NODE_1, first), NodeRegistration(other))
    assert [each.facts for each in all_nodes(world.rows)] == [first, NodeFacts()]
    assert decode_node(1, encode_node(node(world))) == node(world)
    moved = NodeFacts(ReadAddress("replica-1", 19_092, "zone b"))
    world.accept(NodeRegistration(replace(NODE_1, boot_counter=2), moved))
    assert node(world).facts == moved
    world.accept(NodeRegistration(replace(NODE_1, boot_counter=3)))
    assert node(world).facts == NodeFacts(), "it has no read listener any more"
    world.accept(NodeRegistration(WIPED, moved))
    assert [each.facts for each in all_nodes(world.rows)] == [moved, NodeFacts()]


def with_the_first_directory_forgotten(world: World) -> Incarnation:
    """Who has node id 1 now, with a claim."""
    for number in range(PAST_DIRECTORIES_MAX + 1):
        latest = Incarnation(1, Uuid(b"directory-%06d" % number), 1)
        world.accept(NodeRegistration(latest))
    assert NODE_1.directory_id not in dict(node(world).past)
    world.claim((4, 100), node=latest)
    return latest


def test_an_old_life_of_a_directory_that_is_forgotten_counts_as_a_new_one(world: World) -> None:
    old_finish = world.a_finish(2)
    latest = with_the_first_directory_forgotten(world)
    world.accept(NodeRegistration(NODE_1))
    assert world.state.claim is None
    assert world.verdict(old_finish) is Verdict.FENCED, "nothing of what it claimed before"
    world.accept(NodeContested(latest, node(world).boot_offset))
    for incarnation in (NODE_1, latest):
        claim = world.a_claim([(4, 100), (5, 300)], node=incarnation)
        assert world.verdict(claim) is Verdict.FENCED, "two live: neither writes"


def test_a_process_whose_directory_is_forgotten_has_no_say_in_who_has_the_node_id(
    world: World,
) -> None:
    old_finish = world.a_finish(2)
    latest = with_the_first_directory_forgotten(world)
    assert world.verdict(NodeContested(NODE_1, node(world).boot_offset)) is Verdict.CONFLICT
    assert world.verdict(old_finish) is Verdict.FENCED
    assert world.state.claim is not None
    assert world.state.claim.incarnation == latest


def test_a_row_that_no_encoder_wrote_is_corrupt() -> None:
    world = World()
    world.accept(NodeRegistration(NODE_1))
    whole = encode_node(node(world))
    for damaged in (whole[:-1], b"\0\1" + whole[2:], whole + b"\0"):
        with pytest.raises(CorruptData):
            decode_node(1, damaged)


def silence(world: World, *, fenced: bool, epoch: int = 1) -> NodeSilence:
    return NodeSilence(1, node(world).boot_offset, epoch, fenced=fenced)


def test_a_silent_node_is_fenced_and_its_claims_stand(world: World) -> None:
    add = world.an_add(3, 300, 399, [(4, 300)])
    world.accept(silence(world, fenced=True))
    assert (node(world).liveness, node(world).liveness_ms) == (Liveness.FENCED, world.time_ms)
    assert world.verdict(silence(world, fenced=True)) is Verdict.NO_EFFECT
    world.accept(add)
    assert world.state.claim is not None
    world.time_ms += 5
    world.accept(silence(world, fenced=False))
    assert (node(world).liveness, node(world).liveness_ms) == (Liveness.LIVE, world.time_ms)


def test_only_the_leader_of_the_records_own_epoch_judges_silences(world: World) -> None:
    for epoch in (0, 2):
        verdict = world.verdict(silence(world, fenced=True, epoch=epoch))
        assert verdict is Verdict.CONFLICT, epoch
    assert node(world).liveness is Liveness.LIVE


def test_a_silence_is_of_one_registration(world: World) -> None:
    before = silence(world, fenced=True)
    world.accept(NodeRegistration(replace(NODE_1, boot_counter=2)))
    assert world.verdict(before) is Verdict.CONFLICT
    nobody = NodeSilence(9, 0, 1, fenced=True)
    assert world.verdict(nobody) is Verdict.CONFLICT
    assert world.verdict(replace(nobody, node_id=-1)) is Verdict.CONFLICT


def test_a_stopped_node_comes_back_by_its_next_start_alone(world: World) -> None:
    stopped = NodeStopped(NODE_1, node(world).boot_offset)
    assert world.verdict(replace(stopped, incarnation=WIPED)) is Verdict.CONFLICT
    world.accept(stopped)
    assert node(world).liveness is Liveness.STOPPED
    for fenced in (True, False):
        assert world.verdict(silence(world, fenced=fenced)) is Verdict.CONFLICT
    world.accept(NodeRegistration(replace(NODE_1, boot_counter=2)))
    assert (node(world).liveness, node(world).liveness_ms) == (Liveness.LIVE, None)
    assert world.verdict(stopped) is Verdict.CONFLICT, "of the life before"


def test_node_ids_begin_at_zero(world: World) -> None:
    first = Incarnation(0, Uuid(b"a-directory-of-0"), 1)
    world.accept(NodeRegistration(first))
    known = find_node(world.rows, 0)
    assert known is not None
    world.accept(NodeStopped(first, known.boot_offset))


def test_a_removed_node_keeps_what_its_row_says_of_claims(world: World) -> None:
    world.accept(NodeRegistration(WIPED))
    remove = NodeRemoved(1, node(world).boot_offset)
    assert world.verdict(remove) is Verdict.CONFLICT, "it lives"
    world.accept(silence(world, fenced=True))
    world.accept(remove)
    assert node(world).liveness is Liveness.REMOVED
    assert world.state.claim is None, "the directory before is as void as it was"
    assert world.verdict(silence(world, fenced=False)) is Verdict.CONFLICT
    world.accept(NodeRegistration(replace(WIPED, boot_counter=2)))
    assert node(world).liveness is Liveness.LIVE


def test_a_removal_is_of_one_registration(world: World) -> None:
    seen = NodeRemoved(1, node(world).boot_offset)
    world.accept(NodeRegistration(replace(NODE_1, boot_counter=2)))
    world.accept(silence(world, fenced=True))
    assert world.verdict(seen) is Verdict.CONFLICT, "it was started since the admin looked"
    assert world.verdict(replace(seen, node_id=-1)) is Verdict.CONFLICT


def test_a_registration_cannot_speak_for_its_row(world: World) -> None:
    pretended = NodeRegistration(NODE_2, unknown_tags=((OWN_TAGS_FROM, b"\x01"),))
    assert world.verdict(pretended) is Verdict.INVALID


def test_the_liveness_survives_its_row() -> None:
    for liveness in Liveness:
        known = RegisteredNode(
            1, NODE_1.directory_id, 1, 5, 6, 7, unknown_tags=((9, b"new"),), liveness=liveness,
            liveness_ms=8,
        )  # fmt: skip
        assert decode_node(1, encode_node(known)) == known
    with pytest.raises(CorruptData, match="liveness 7"):
        decode_node(1, encode_node(replace(known, liveness=7)))  # type: ignore[arg-type]


def test_a_removed_node_that_lives_registers_again_from_a_level_on(world: World) -> None:
    world.accept(silence(world, fenced=True), NodeRemoved(1, node(world).boot_offset))
    assert world.verdict(NodeRegistration(NODE_1)) is Verdict.NO_EFFECT
    assert node(world).liveness is Liveness.REMOVED
    world.accept(FeatureLevel(REJOINING_LEVEL, -1))
    facts = NodeFacts(log_dirs=3)
    before = node(world)
    world.accept(NodeRegistration(NODE_1, facts))
    now = node(world)
    assert (now.liveness, now.facts, now.boot_offset) == (Liveness.LIVE, facts, world.offset)
    assert (now.offset, now.boot_counter) == (before.offset, before.boot_counter)
    assert world.state.claim is not None, "its claims stand"
    assert world.verdict(NodeRegistration(NODE_1)) is Verdict.NO_EFFECT
    assert world.verdict(NodeRemoved(1, before.boot_offset)) is Verdict.CONFLICT
