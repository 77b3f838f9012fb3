"""Voters that remember nothing: new, or formatted again after they lost their disks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.raft.actions import LogCut, PersistedState, PersistQuorumState, Role, SendRequest
from rlmm.raft.damaged_tail import NO_MEMORY
from rlmm.raft.events import Tick
from rlmm.raft.messages import (
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from rlmm.raft.replica import InitialState
from rlmm.raft.states import Prospective
from tests.rlmm.raft.story import Story, key, voter_set
from tests.rlmm.raft.test_damaged_tail import log, rounds, vote, with_all

REMOVED = InitialState(
    PersistedState(1),
    log_end_offset=5,
    epochs=((1, 0),),
    voter_sets=((2, voter_set(1, 2, 3)), (4, voter_set(1, 2))),
    committed_offset=4,
)
"""Of a node that wrote the removal of node 3, which may not be committed."""


def test_a_voter_formatted_again_does_not_help_a_log_that_lacks_what_it_acknowledged() -> None:
    # Nodes 1 and 2 had everything up to 20; node 1 lost its disk, node 2 is down, node 3 is behind.
    story = Story(initial={1: InitialState(), 2: log(20), 3: log(12)})
    rounds(story, 3, 1)
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
    story.settle(1)
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


def uncounted(offset: int, last_epoch: int, incarnation: int) -> FetchRequest:
    return FetchRequest(key(2), 1, offset, last_epoch, 0, 1 << 20, -1, incarnation, counts=False)


def test_each_life_of_such_a_voter_needs_a_proof_of_its_own() -> None:
    # Between two of them it may have counted for a later leader.
    story = Story()
    story.elect(1)
    story.drop()
    told = []
    for life in (11, 12):
        for _ in range(2):
            answer = story.request(1, uncounted(0, 0, life))
            assert isinstance(answer, FetchResponse)
            told.append(answer.high_watermark)
        story.settle(1)
        end = story.cores[1].log_end_offset
        story.request(1, FetchRequest(key(3), 1, end, 1, 0, 1 << 20))
        assert story.cores[1].high_watermark == end
    assert told == [-1] * 4


def test_what_was_said_while_it_did_not_count_is_no_acknowledgement_later() -> None:
    story = Story()
    story.elect(1)
    story.drop()
    story.request(1, uncounted(0, 0, 11))
    story.settle(1)
    end, committed = story.cores[1].log_end_offset, story.cores[1].high_watermark
    story.request(1, uncounted(end, 1, 11))
    # It counts now, and this fetch diverges.
    diverging = FetchRequest(key(2), 1, end - 1, 0, 0, 1 << 20, -1, 11)
    answer = story.request(1, diverging)
    assert isinstance(answer, FetchResponse)
    assert answer.diverging is not None
    story.propose(1, "alone")
    story.flush(1)
    assert story.cores[1].high_watermark == committed < end


def test_all_have_answered_only_with_a_voter_whose_removal_may_not_be_committed() -> None:
    # Node 1 removed node 3 and heard nobody since. The two others went on; node 2 lost its disk.
    went_on = InitialState(PersistedState(2), log_end_offset=6, epochs=((1, 0), (2, 4)))
    story = Story(initial={1: REMOVED, 2: InitialState(), 3: went_on})
    rounds(story, 1, 2)
    assert Role.LEADER not in (story.role(1), story.role(2))
    with_all(story)
    kept = {tuple(b.epoch for b in story.logs[node] if b.end_offset <= 6) for node in (1, 2, 3)}
    assert [each[-2:] for each in kept] == [(2, 2)]
    assert {core.cut for core in story.cores.values()} == {None}


@pytest.mark.parametrize("known", [4, 2, 0])
def test_so_has_one_who_was_added_behind_what_is_known_to_be_committed(known: int) -> None:
    # Formatted as 1 and 2; node 3 was added, and node 1 wrote its removal.
    sets = ((0, voter_set(1, 2)), (2, voter_set(1, 2, 3)), (4, voter_set(1, 2)))
    removed = replace(REMOVED, voter_sets=sets, committed_offset=known)
    story = Story((1, 2), initial={1: removed, 2: InitialState()})
    rounds(story, 1, 2)
    assert Role.LEADER not in (story.role(1), story.role(2))


def test_the_last_to_answer_may_be_one_whose_removal_may_not_be_committed() -> None:
    behind = replace(REMOVED, log_end_offset=4, voter_sets=REMOVED.voter_sets[:1])
    story = Story(initial={1: REMOVED, 2: InitialState(), 3: behind})
    story.drop()
    story.tick(1, 1000)
    story.settle()
    assert story.role(1) is Role.LEADER


def test_who_was_replaced_long_ago_need_not_answer() -> None:
    sets = ((0, voter_set(1, 2, 3)), (10, voter_set(1, 2)), (12, voter_set(1, 2, 4)))
    torn = InitialState(
        PersistedState(2),
        log_end_offset=1990,
        epochs=((2, 0),),
        voter_sets=sets,
        cut=LogCut(2, 2000),
    )
    whole = replace(torn, log_end_offset=1994, cut=None)
    story = Story((1, 2, 3), (4,), initial={1: torn, 2: torn, 4: whole})
    rounds(story, 4, 1, 2)
    assert {story.cores[node].cut for node in (1, 2, 4)} == {None}
    assert min(story.cores[node].log_end_offset for node in (1, 2, 4)) > 1994


def test_a_cut_is_heard_in_an_answer_that_nobody_waits_for_any_more() -> None:
    # Both were asked before either answered: the second need not be asked once more to say it.
    story = Story(initial={1: log(20), 2: log(10, LogCut(2, 30)), 3: log(10, LogCut(2, 30))})
    story.drop()
    story.tick(1, 1000)
    for node in (2, 3):
        story.deliver(1, node)
    for node in (2, 3):
        story.deliver(node, 1)
    state = story.cores[1].replica.state
    assert isinstance(state, Prospective)
    assert [ballot.said_cut for ballot in state.ballots.values()] == [True, True]


def test_answers_from_before_another_voter_said_that_it_lacks_something_do_not_count() -> None:
    # Node 3 may have followed another leader since, by the vote that node 2 has forgotten.
    story = Story(initial={1: log(10, LogCut(2, 12)), 2: InitialState(), 3: log(10)})
    story.drop()
    story.tick(1, 1000)
    story.settle(1, 3)
    asked = len(requests_to_node_3(story))
    story.settle(1, 2)
    again = requests_to_node_3(story)[asked:]
    assert [(each.pre_vote, each.all_answered) for each in again] == [(True, False)]
    assert story.role(1) is Role.PROSPECTIVE
    story.settle()
    assert story.role(1) is Role.LEADER


def requests_to_node_3(story: Story) -> list[VoteRequest]:
    return [
        action.request
        for action in story.said[1]
        if isinstance(action, SendRequest)
        and action.destination == 3
        and isinstance(action.request, VoteRequest)
    ]
