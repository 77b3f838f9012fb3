"""The quorum core in all interleavings of small worlds: counts, equalities, planted mistakes."""

from __future__ import annotations

import pytest

from rlmm.raft import damaged_tail, election, identity, leader_append, quorum_state
from rlmm.raft.messages import Batch, ReplicaKey, VoteRequest
from rlmm.raft.replica import Replica
from rlmm.raft.states import Ballot, Candidate, Leader, Prospective
from sim.core.planted_bugs import BUGS
from sim.explore.scenes import SCENES, blank
from sim.explore.space import Space
from sim.explore.states import Found, Scene, State
from sim.ground.planting import Patches, planting

STATES = 12_000
STATES_THAT_HOLD = 5_000
STATES_IN_SOAK = 3_000_000

_told_end = damaged_tail.told_end
_heard_of_cut = damaged_tail.heard_of_cut
_refuses_second_process = identity.refuses_second_process
_append = leader_append.append


@pytest.mark.parametrize(
    ("budgets", "by_depth"),
    [
        # It leads at once: its first batch is written, and then synced.
        ({}, (1, 1, 0)),
        # Synced, or cut off with the batch or without it; each life writes a batch and syncs it.
        ({"crash": 1}, (1, 3, 3, 1, 0)),
        # The write waits for the first sync, or comes behind it, and is synced.
        ({"write": 1}, (1, 2, 1, 1, 0)),
    ],
)
def test_the_states_of_a_voter_alone_are_those_counted_by_hand(
    budgets: dict[str, int], by_depth: tuple[int, ...]
) -> None:
    found = Space(Scene(budgets, blank, nodes=1, voters=1)).search(1000)
    assert (found.by_depth, found.exhausted, found.broken) == (by_depth, True, None)


@pytest.mark.parametrize("scene", SCENES)
def test_steps_that_are_looked_up_lead_where_steps_lead_that_are_carried_out(scene: str) -> None:
    looked_up = Space(SCENES[scene]).search(400)
    carried_out = Space(SCENES[scene], remember=False).search(400)
    assert looked_up.by_depth == carried_out.by_depth
    assert looked_up.steps < carried_out.steps


class Unmerged(Space):
    """Visits states that differ in the names of hosts only, and counts those that do not."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.merged: set[int] = set()

    def mark(self, state: State) -> int:
        self.merged.add(super().mark(state))
        return hash(state)


def test_hosts_that_are_alike_are_not_told_apart_and_no_state_is_lost_by_it() -> None:
    scene = Scene({"late": 1, "tick": 1}, blank, nodes=2, voters=2, alike=(0, 1), epochs=1)
    unmerged = Unmerged(scene)
    every = unmerged.search(20_000)
    merged = Space(scene).search(20_000)
    assert every.exhausted
    assert merged.exhausted
    assert merged.states < every.states
    assert merged.states == len(unmerged.merged)


def searched(scene: str, states: int) -> Found:
    found = Space(SCENES[scene]).search(states)
    assert found.broken is None, "\n".join((*found.broken.moves, found.broken.message))
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_every_invariant_holds_in_the_first_states(scene: str) -> None:
    found = searched(scene, STATES_THAT_HOLD)
    assert found.exhausted or found.states >= STATES_THAT_HOLD


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_every_invariant_holds_in_some_millions_of_states(scene: str) -> None:
    found = searched(scene, STATES_IN_SOAK)
    assert found.exhausted or found.states >= STATES_IN_SOAK


def _stands_at_any_time(r: Replica) -> bool:
    return r.is_electable and not r.shutting_down


def _ballots_of_the_latest(r: Replica) -> dict[ReplicaKey, Ballot]:
    return {key: Ballot(due_ms=r.now) for key in r.voters.keys if key != r.key}


def _end_told_by_candidates(r: Replica, candidate: ReplicaKey, *, pre_vote: bool) -> int:
    if r.state.voted == r.key:
        return r.log.end_offset
    return _told_end(r, candidate, pre_vote=pre_vote)


def _heard_of_cut_alone(r: Replica, voter: ReplicaKey) -> None:
    """Ask the others again, and keep the answers that they gave before."""
    ballots = r.state.ballots if isinstance(r.state, Candidate | Prospective) else {}
    before = {key: (ballot.answer, ballot.granted) for key, ballot in ballots.items()}
    _heard_of_cut(r, voter)
    for key, ballot in ballots.items():
        ballot.answer, ballot.granted = before[key]


def _votes_of_earlier_lives_are_free(r: Replica, request: VoteRequest) -> bool:
    given = r.vote_given is not None and r.vote_given[0] == request.epoch
    return given and _refuses_second_process(r, request)


def _prove_by_the_log_before(r: Replica, leader: Leader, batches: tuple[Batch, ...]) -> None:
    before, groups = r.log.end_offset, len(leader.barriers.groups)
    _append(r, leader, batches)
    if len(leader.barriers.groups) > groups:
        leader.barriers.groups.append((before, leader.barriers.groups.pop()[1]))


FOUND = {
    "the leader counts what it has not synced": ("led", "hw_is_durable"),
    "the follower fetches before it has synced": ("led", "fetch_is_durable"),
    "the vote is not persisted": ("blank", "persisted_first"),
    "a restart forgets vote and leadership": ("two voters", "vote_is_kept"),
    "records of older epochs are committed by counting": ("led again", "commit_in_own_epoch"),
    "votes go to logs that are behind": ("lagging", "leader_completeness"),
    "truncation ignores the high watermark": ("told of another tail", "no_truncation_below_hw"),
    "a stale flush completion is believed": ("told of another tail", "hw_is_durable"),
    "a truncation keeps the generation": ("two tails", "each_truncation_has_a_generation"),
    "the leader takes any fetch offset for valid": ("told of another tail", "hw_is_durable"),
    "two voter changes at once": ("removal", "one_voter_change"),
    "a commit of an earlier epoch allows a voter change": (
        "new leader",
        "change_behind_own_commit",
    ),
    "a pre-vote raises the epoch": ("blank", "prospective_keeps_epoch"),
    "a barrier asks no majority": ("two leaders", "linearizable_reads"),
    "the fastest replica commits": ("led", "hw_is_durable"),
    "truncation does not undo a voter change": ("told of other voters", "voters_of_own_log"),
    "a leader never misses its majority": ("led", "leads_with_majority"),
    "a pre-vote disturbs a leader that is heard": ("led", "pre_vote_spares_leader"),
    "a leader that was removed stays": ("leader removed", "removed_leader_resigns"),
    "a cut tail is forgotten": ("lost", "leader_completeness"),
    "a cut is forgotten over a restart": ("lost", "cut_is_kept"),
    "any told high watermark heals a cut": ("lost and told", "cut_is_kept"),
    "records that are not synced heal a cut": ("lost and told", "cut_is_kept"),
    "only the latest voters are asked": ("lost behind removal", "leader_completeness"),
    "a voter stands while a snapshot replaces its log": ("installing", "stands_with_its_log"),
    "a candidate tells its log's end to another": ("forgotten vote", "one_leader_per_epoch"),
    "answers from before a loss count": ("forgotten leader", "committed_never_lost"),
    "a restart gives its vote to any process with the key": (
        "copied",
        "one_process_gets_the_vote",
    ),
    "a barrier is proven by what lies before its record": ("two leaders", "linearizable_reads"),
}
"""A scene whose first `STATES` states show the mistake, and the invariant that it breaks."""
FURTHER_BUGS: dict[str, Patches] = {
    "a voter stands while a snapshot replaces its log": (
        (election, "may_stand", _stands_at_any_time),
    ),
    "a candidate tells its log's end to another": (
        (damaged_tail, "told_end", _end_told_by_candidates),
    ),
    "answers from before a loss count": ((damaged_tail, "heard_of_cut", _heard_of_cut_alone),),
    "a restart gives its vote to any process with the key": (
        (identity, "refuses_second_process", _votes_of_earlier_lives_are_free),
    ),
    "a barrier is proven by what lies before its record": (
        (leader_append, "append", _prove_by_the_log_before),
    ),
    "only the latest voters are asked": ((quorum_state, "_ballots", _ballots_of_the_latest),),
}
NOT_SHOWN = {
    "the follower ignores divergence": "it never catches up, and no state by itself is wrong",
    "snapshot ids are not compared": "a second snapshot during a download: too many moves",
    "a commit is believed in any epoch": "nobody is told of a commit but by Fetch",
    "a cut takes back a voter set that counts": "no disk loses its first voters",
    "the voters of a replaced log stay": "no voters change before a snapshot is installed",
    "a snapshot has the voters of one change before": "no voters change before a snapshot is taken",
    "a change is done before its record is committed": "nobody is told of a change",
    "a voter is added that lags": "no voter is added",
    "each append is a sign that the disk works": "no leader writes for as long as a disk may hang",
    "a proposal is committed with its first record": "each proposal is one record",
    "a voter formatted again takes itself for new": "no disk is formatted again",
    "a voter formatted again counts at once": "no disk is formatted again",
    "a wiped disk counts as the old replica": "no disk is wiped",
}
"""The reason why the scenes do not show a mistake that seeds show."""


@pytest.mark.parametrize("bug", FOUND)
def test_a_planted_mistake_is_found_with_its_schedule(bug: str) -> None:
    scene, invariant = FOUND[bug]
    with planting((BUGS | FURTHER_BUGS)[bug]):
        broken = Space(SCENES[scene]).search(STATES).broken
    assert broken is not None
    assert broken.name == invariant
    assert broken.moves


def test_each_planted_mistake_is_found_or_a_reason_is_given() -> None:
    assert FOUND.keys() | NOT_SHOWN.keys() == BUGS.keys() | FURTHER_BUGS.keys()
    assert not FOUND.keys() & NOT_SHOWN.keys()
