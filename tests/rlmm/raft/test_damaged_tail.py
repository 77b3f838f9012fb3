"""Voters whose tail was cut by recovery (design 5.1 (6)), and those that remember nothing."""

from __future__ import annotations

import pytest

from rlmm.raft.actions import (
    CommandDone,
    LogCut,
    PersistedState,
    PersistQuorumState,
    Role,
    SendRequest,
)
from rlmm.raft.damaged_tail import NO_MEMORY
from rlmm.raft.events import AcceptCut, Tick
from rlmm.raft.initial_state import InitialState
from rlmm.raft.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from tests.rlmm.raft.story import Story, key

CUT = LogCut(epoch=2, old_end_offset=20)


def log(end: int, cut: LogCut | None = None, epoch: int = 2) -> InitialState:
    return InitialState(
        PersistedState(epoch, cut=cut), log_end_offset=end, epochs=((epoch, 0),), cut=cut
    )


def vote(last_epoch: int, last_offset: int, *, all_answered: bool = False) -> VoteRequest:
    return VoteRequest(5, key(2), key(1), last_epoch, last_offset, False, all_answered)


def without_node_2(story: Story) -> None:
    """Twenty rounds of elections that reach the two others only."""
    for _ in range(20):
        for node in (3, 1):
            story.tick(node, 700)
            story.settle(1, 3)
            story.drop()


def with_all(story: Story) -> None:
    for _ in range(10):
        for node in (2, 3, 1):
            story.tick(node, 700)
            story.settle()


@pytest.mark.parametrize(
    ("request_", "granted", "tail_was_cut"),
    [
        (vote(2, 20), True, False),
        (vote(2, 25), True, False),
        (vote(3, 1), True, False),
        (vote(2, 19), False, True),
        (vote(2, 10), False, True),
        (vote(2, 9), False, False),
        (vote(1, 99), False, False),
        (vote(2, 10, all_answered=True), True, False),
        (vote(2, 9, all_answered=True), False, False),
    ],
)
def test_a_cut_voter_votes_for_logs_that_reach_its_old_end(
    request_: VoteRequest, granted: bool, tail_was_cut: bool
) -> None:
    story = Story(initial={1: log(10, CUT)})
    answer = story.request(1, request_)
    assert isinstance(answer, VoteResponse)
    assert (answer.vote_granted, answer.tail_was_cut) == (granted, tail_was_cut)
    assert (answer.last_epoch, answer.last_offset) == (2, 10)


def test_the_cut_is_durable_before_anything_is_said() -> None:
    story = Story(initial={1: InitialState(PersistedState(2), 0, 0, 10, ((2, 0),), cut=CUT)})
    first = story.said[1][0]
    assert isinstance(first, PersistQuorumState)
    assert first.state.cut == CUT
    again = Story(initial={1: InitialState(first.state, 0, 0, 10, ((2, 0),))})
    assert again.cores[1].cut == CUT


def test_of_two_cuts_the_greater_is_remembered() -> None:
    worse = LogCut(2, 30)
    initial = InitialState(PersistedState(2, cut=worse), 0, 0, 10, ((2, 0),), cut=CUT)
    assert Story(initial={1: initial}).cores[1].cut == worse


def test_a_sole_voter_goes_on() -> None:
    story = Story((1,), initial={1: log(10, CUT)})
    assert story.role(1) is Role.LEADER
    assert story.cores[1].cut is None


def test_a_log_that_lost_an_acknowledged_record_is_not_elected_with_the_cut_voters_help() -> None:
    # Nodes 1 and 2 had everything up to 20; node 1 was cut at 10, node 2 is down, node 3 is behind.
    story = Story(initial={1: log(10, CUT), 2: log(20), 3: log(12)})
    without_node_2(story)
    assert Role.LEADER not in (story.role(1), story.role(3))
    with_all(story)
    leader = next(node for node in (1, 2, 3) if story.role(node) is Role.LEADER)
    assert leader == 2
    assert story.cores[1].log_end_offset == story.cores[2].log_end_offset > 20
    assert story.cores[1].cut is None


def test_when_every_voter_has_answered_the_longest_log_leads() -> None:
    # All three were cut (one power cut): nobody has what node 2 had, and everybody says so.
    story = Story(initial={1: log(10, CUT), 2: log(15, CUT), 3: log(12, LogCut(2, 13))})
    for _ in range(10):
        for node in (1, 2, 3):
            story.tick(node, 700)
            story.settle()
    assert story.role(2) is Role.LEADER
    assert {core.cut for core in story.cores.values()} == {None}


def test_a_cut_voter_that_refused_is_asked_again_after_a_pause_and_not_at_once() -> None:
    # Node 3 is gone, so nobody can say that all have answered.
    story = Story(initial={1: log(10, CUT), 2: log(10, CUT)})
    story.tick(1, 3000)
    story.settle(1, 2)
    asked = [
        action.request
        for action in story.said[1]
        if isinstance(action, SendRequest) and action.destination == 2
    ]
    assert [type(request) for request in asked] == [VoteRequest] * len(asked)
    assert 1 <= len(asked) <= 2
    assert story.cores[1].next_deadline_ms() > story.now


def test_a_cut_voter_does_not_stand_alone_with_a_majority() -> None:
    story = Story(initial={1: log(15, CUT), 2: log(10), 3: log(10)})
    for _ in range(10):
        story.tick(1, 1000)
        story.settle(1, 2)
        story.drop()
    assert story.role(1) is not Role.LEADER
    story.tick(1, 1000)
    story.settle()
    for _ in range(5):
        story.tick(1, 1000)
        story.settle()
    assert story.role(1) is Role.LEADER


def test_a_cut_voter_heals_by_fetching_what_the_leader_has_committed() -> None:
    # The old end was an upper bound: nothing that long ever existed.
    story = Story(initial={1: log(8, LogCut(2, 1000)), 2: log(10), 3: log(10)})
    story.elect(2)
    assert story.cores[1].cut is None
    assert persisted_cuts(story, 1)[-1] is None


def persisted_cuts(story: Story, node: int) -> list[LogCut | None]:
    return [each.state.cut for each in story.said[node] if isinstance(each, PersistQuorumState)]


def test_the_operator_may_accept_the_cut() -> None:
    story = Story(initial={1: log(10, CUT)})
    (done,) = [a for a in story.feed(1, AcceptCut("op")) if isinstance(a, CommandDone)]
    assert done.error is Error.NONE
    assert persisted_cuts(story, 1)[-1] is None
    answer = story.request(1, vote(2, 12))
    assert isinstance(answer, VoteResponse)
    assert answer.vote_granted
    (again,) = story.feed(1, AcceptCut("op"))
    assert isinstance(again, CommandDone)
    assert again.error is Error.INVALID_REQUEST


# ---- a voter that remembers nothing: new, or formatted again after it lost its disk


def test_a_voter_formatted_again_does_not_help_a_log_that_lacks_what_it_acknowledged() -> None:
    # Nodes 1 and 2 had everything up to 20; node 1 lost its disk, node 2 is down, node 3 is behind.
    story = Story(initial={1: InitialState(), 2: log(20), 3: log(12)})
    without_node_2(story)
    assert Role.LEADER not in (story.role(1), story.role(3))
    assert any("No answer from node 2: start it" in each for each in story.warnings(1))
    with_all(story)
    assert story.role(2) is Role.LEADER
    assert story.cores[1].log_end_offset == story.cores[2].log_end_offset > 20
    assert {core.cut for core in story.cores.values()} == {None}


def test_no_log_is_long_enough_for_a_voter_that_remembers_nothing() -> None:
    story = Story(initial={1: InitialState()})
    refused = story.request(1, vote(4, 1 << 40))
    granted = story.request(1, vote(4, 1 << 40, all_answered=True))
    assert isinstance(refused, VoteResponse)
    assert isinstance(granted, VoteResponse)
    assert (refused.vote_granted, refused.tail_was_cut) == (False, True)
    assert granted.vote_granted


def test_that_it_remembers_nothing_is_durable_and_survives_restarts() -> None:
    first = Story(initial={1: InitialState()}).said[1][0]
    assert isinstance(first, PersistQuorumState)
    assert first.state.cut == NO_MEMORY
    again = Story(initial={1: InitialState(first.state, 0, 0, 10, ((2, 0),))})
    assert again.cores[1].cut == NO_MEMORY


@pytest.mark.parametrize("voters", [(1,), (2, 3, 4)], ids=["alone", "no voter"])
def test_who_waits_for_nobody_remembers_enough(voters: tuple[int, ...]) -> None:
    story = Story(voters, () if 1 in voters else (1,), initial={1: InitialState()})
    assert story.cores[1].cut is None


def test_a_new_quorum_elects_once_all_have_answered() -> None:
    story = Story(initial={node: InitialState() for node in (1, 2, 3)})
    for _ in range(5):
        story.tick(1, 1000)
        story.settle(1, 2)
        story.drop()
    assert story.role(1) is not Role.LEADER
    for _ in range(2):
        story.tick(1, 1000)
        story.settle()
    assert story.role(1) is Role.LEADER
    assert {core.cut for core in story.cores.values()} == {None}


def test_a_candidate_has_not_answered_another_one_of_its_epoch() -> None:
    # Node 1 may have voted for either and forgotten it, and that vote may be on its way.
    story = Story(initial={1: InitialState()})
    story.drop()
    story.tick(2, 1000)
    story.tick(3)
    story.settle(2, 3)
    assert [story.role(node) for node in (2, 3)] == [Role.CANDIDATE] * 2
    story.settle()
    votes = [
        action.request
        for node in (2, 3)
        for action in story.said[node]
        if isinstance(action, SendRequest) and isinstance(action.request, VoteRequest)
    ]
    assert {each.epoch for each in votes if not each.pre_vote} == {1}
    assert not any(each.all_answered for each in votes if not each.pre_vote)


@pytest.mark.parametrize("pre_vote", [False, True])
def test_who_voted_for_another_in_the_epoch_has_not_answered(pre_vote: bool) -> None:
    # That one may lead by the vote of a replica that lost its disk since.
    story = Story()
    story.request(1, VoteRequest(5, key(3), key(1), 0, 0, False))
    answer = story.request(1, VoteRequest(5, key(2), key(1), 0, 0, pre_vote))
    again = story.request(1, VoteRequest(5, key(3), key(1), 0, 0, False))
    assert isinstance(answer, VoteResponse)
    assert isinstance(again, VoteResponse)
    assert (answer.last_offset, again.last_offset) == (0 if pre_vote else -1, 0)


@pytest.mark.parametrize("counts", [True, False])
def test_a_fetch_that_does_not_count_commits_nothing_and_keeps_no_leader(counts: bool) -> None:
    story = Story()
    story.elect(1)
    story.drop()
    offset = story.cores[1].log_end_offset
    story.propose(1, "alone")
    story.flush(1)
    fetch = FetchRequest(key(2), 1, offset + 1, 1, 0, 1 << 20, -1, counts=counts)
    story.request(1, fetch)
    assert story.cores[1].high_watermark == offset + counts
    for _ in range(5):
        story.tick(1, 1000)
        story.request(1, fetch)
    assert (story.role(1) is Role.LEADER) == counts


def test_a_voter_formatted_again_makes_one_record_and_is_told_nothing_before_it_is_committed() -> (
    None
):
    story = Story()
    story.elect(1)
    story.drop()
    end = story.cores[1].log_end_offset
    first = FetchRequest(key(2), 1, 0, 0, 0, 1 << 20, counts=False)
    told = [story.request(1, first) for _ in range(3)]
    assert story.cores[1].log_end_offset == end + 1
    while story.flushes[1]:
        story.flush(1)
    story.request(1, FetchRequest(key(3), 1, end + 1, 1, 0, 1 << 20))
    told.append(story.request(1, first))
    known = [each.high_watermark for each in told if isinstance(each, FetchResponse)]
    assert known == [-1, -1, -1, end + 1]


def test_who_voted_for_its_leader_counts_at_once() -> None:
    # A new quorum: all voted, and nobody else could commit.
    story = Story(initial={node: InitialState() for node in (1, 2, 3)})
    story.elect(1)
    fetches = [
        action.request
        for action in story.said[2]
        if isinstance(action, SendRequest) and isinstance(action.request, FetchRequest)
    ]
    assert {each.counts for each in fetches if each.fetch_offset > 0} == {True}


def test_who_is_always_a_little_behind_heals_too() -> None:
    story = Story(initial={1: InitialState(), 2: log(10), 3: log(10)})
    story.drop()
    story.tick(2, 1000)
    story.settle(2, 3)
    story.feed(2, Tick())
    # Each answer tells a high watermark above what was durable before it.
    for number in range(8):
        story.propose(2, f"p{number}")
        story.settle(2, 3)
        story.tick(1, 100)
        story.deliver(1, 2)
        story.deliver(2, 1)
        while story.flushes[1]:
            story.propose(2, f"q{number}")
            story.settle(2, 3)
            story.flush(1)
    assert story.cores[1].log_end_offset < story.cores[2].log_end_offset
    assert story.cores[1].cut is None
