"""Who gets a vote: the table of KIP-595 and KIP-996, and what is durable before the answer."""

from __future__ import annotations

import pytest

from rlmm.raft import votes
from rlmm.raft.actions import PersistedState, PersistQuorumState, SendResponse, Warn
from rlmm.raft.events import RequestReceived
from rlmm.raft.messages import Error, ReplicaKey, VoteRequest, VoteResponse
from rlmm.raft.replica import InitialState
from rlmm.raft.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from tests.rlmm.raft.story import Story, key, persisted

ME, OTHER, THIRD = key(1), key(2), key(3)


def vote(
    epoch: int = 5,
    candidate: ReplicaKey = OTHER,
    *,
    last: tuple[int, int] = (4, 10),
    pre_vote: bool = False,
    voter: ReplicaKey = ME,
) -> VoteRequest:
    return VoteRequest(epoch, candidate, voter, last[0], last[1], pre_vote)


def unattached(voted: ReplicaKey | None = None, leader_id: int = -1) -> State:
    return Unattached(5, leader_id, voted, 0)


def prospective(voted: ReplicaKey | None = None, leader_id: int = -1) -> State:
    return Prospective(5, leader_id, voted, 0, {})


def follower(*, has_fetched: bool, leader_resigned: bool = False) -> State:
    return Follower(5, 3, None, 0, has_fetched, leader_resigned)


LEADER = Leader(5, 1, ME, 0, 0, 0)
CANDIDATE = Candidate(5, ME, 0, {})
RESIGNED = Resigned(5, 1, ME, 0)


@pytest.mark.parametrize(
    ("state", "pre_vote", "up_to_date", "granted"),
    [
        (unattached(), False, True, True),
        (unattached(), False, False, False),
        (unattached(OTHER), False, True, True),
        (unattached(OTHER), False, False, True),
        (unattached(THIRD), False, True, False),
        (unattached(OTHER._replace(directory_id="wiped")), False, True, False),
        (unattached(leader_id=3), False, True, False),
        (unattached(), True, True, True),
        (unattached(), True, False, False),
        (unattached(THIRD), True, True, True),
        (unattached(leader_id=3), True, True, True),
        (prospective(), False, True, True),
        (prospective(), False, False, False),
        (prospective(THIRD), False, True, False),
        (prospective(leader_id=3), False, True, False),
        (prospective(THIRD), True, True, True),
        (prospective(), True, False, False),
        (follower(has_fetched=False), False, True, False),
        (follower(has_fetched=True), False, True, False),
        (follower(has_fetched=False), True, True, True),
        (follower(has_fetched=False), True, False, False),
        (follower(has_fetched=True), True, True, False),
        (follower(has_fetched=True, leader_resigned=True), True, True, True),
        (LEADER, False, True, False),
        (LEADER, True, True, False),
        (CANDIDATE, False, True, False),
        (CANDIDATE, True, True, True),
        (CANDIDATE, True, False, False),
        (RESIGNED, False, True, False),
        (RESIGNED, True, True, True),
    ],
)
def test_a_vote_is_granted_by_the_table(
    state: State, pre_vote: bool, up_to_date: bool, granted: bool
) -> None:
    request = vote(pre_vote=pre_vote)
    assert votes.can_grant(state, request, log_up_to_date=up_to_date) is granted


@pytest.mark.parametrize(
    ("request_", "valid"),
    [
        (vote(last=(4, 10)), True),
        (vote(last=(5, 10)), False),
        (vote(last=(6, 10)), False),
        (vote(last=(5, 10), pre_vote=True), True),
        (vote(last=(6, 10), pre_vote=True), False),
        (vote(epoch=-1, last=(-2, 0)), False),
        (vote(last=(4, -1)), False),
        (vote(epoch=2**31), False),
    ],
)
def test_impossible_requests_are_refused(request_: VoteRequest, valid: bool) -> None:
    assert votes.valid(request_) is valid
    if not valid:
        answer = Story().request(1, request_)
        assert isinstance(answer, VoteResponse)
        assert answer.error is Error.INVALID_REQUEST
        assert answer.leader_epoch == 0


@pytest.mark.parametrize(
    ("last", "granted"),
    [((2, 0), True), ((1, 7), True), ((1, 8), True), ((1, 6), False), ((0, 99), False)],
)
def test_logs_compare_by_last_epoch_then_end_offset(last: tuple[int, int], granted: bool) -> None:
    log = InitialState(
        quorum=PersistedState(1), log_end_offset=7, epochs=((1, 0),), committed_offset=0
    )
    story = Story(initial={1: log})
    answer = story.request(1, vote(5, last=last))
    assert isinstance(answer, VoteResponse)
    assert answer.vote_granted is granted


def test_the_vote_is_durable_before_the_answer() -> None:
    story = Story()
    actions = story.feed(1, RequestReceived("x", vote(5)))
    assert persisted(actions) == [(5, -1, -1), (5, -1, 2)]
    kinds = [type(each) for each in actions]
    assert kinds.index(SendResponse) > max(
        index for index, kind in enumerate(kinds) if kind is PersistQuorumState
    )


def test_a_lower_epoch_is_fenced_and_a_higher_one_is_taken_before_anything_else() -> None:
    story = Story()
    story.request(1, vote(5, last=(0, 0), pre_vote=True))
    assert story.cores[1].epoch == 5
    fenced = story.request(1, vote(4, last=(3, 10)))
    assert isinstance(fenced, VoteResponse)
    assert fenced.error is Error.FENCED_LEADER_EPOCH
    assert fenced.leader_epoch == 5


def test_a_pre_vote_persists_no_vote() -> None:
    story = Story()
    actions = story.feed(1, RequestReceived("x", vote(5, last=(0, 0), pre_vote=True)))
    assert persisted(actions) == [(5, -1, -1)]


@pytest.mark.parametrize("meant_for", [key(3), key(1, "another")])
def test_a_request_for_another_replica_is_refused(meant_for: ReplicaKey) -> None:
    answer = Story().request(1, vote(voter=meant_for))
    assert isinstance(answer, VoteResponse)
    assert answer.error is Error.INVALID_VOTER_KEY
    assert not answer.vote_granted


def test_a_vote_is_given_once_in_an_epoch_and_again_to_the_same_replica() -> None:
    story = Story()
    for candidate, granted in ((OTHER, True), (OTHER, True), (THIRD, False), (OTHER, True)):
        answer = story.request(1, vote(5, candidate))
        assert isinstance(answer, VoteResponse)
        assert answer.vote_granted is granted


def test_a_candidate_outside_the_voter_set_gets_its_vote_and_observers_vote() -> None:
    # KAFKA-16526: the VotersRecord may not have arrived everywhere.
    story = Story((1, 2, 3), (4,))
    stranger = story.request(1, vote(5, key(9)))
    by_observer = story.request(4, vote(5, voter=key(4)))
    assert isinstance(stranger, VoteResponse)
    assert isinstance(by_observer, VoteResponse)
    assert stranger.vote_granted
    assert by_observer.vote_granted


def test_a_copy_of_this_node_gets_no_vote_and_a_log_line() -> None:
    story = Story()
    actions = story.feed(1, RequestReceived("x", vote(5, ME)))
    assert any(isinstance(each, Warn) and "was copied" in each.message for each in actions)
    (answer,) = [each.response for each in actions if isinstance(each, SendResponse)]
    assert isinstance(answer, VoteResponse)
    assert answer.error is Error.INVALID_REQUEST
