"""Voters whose tail was cut by recovery."""

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
from rlmm.raft.events import AcceptCut
from rlmm.raft.messages import (
    Error,
    VoteRequest,
    VoteResponse,
)
from rlmm.raft.replica import InitialState
from tests.rlmm.raft.story import Story, key

CUT = LogCut(epoch=2, old_end_offset=20)


def log(end: int, cut: LogCut | None = None, epoch: int = 2) -> InitialState:
    return InitialState(
        PersistedState(epoch, cut=cut), log_end_offset=end, epochs=((epoch, 0),), cut=cut
    )


def vote(last_epoch: int, last_offset: int, *, all_answered: bool = False) -> VoteRequest:
    return VoteRequest(5, key(2), key(1), last_epoch, last_offset, False, all_answered)


def rounds(story: Story, *nodes: int) -> None:
    """Twenty rounds of elections that reach these nodes only."""
    for _ in range(20):
        for node in nodes:
            story.tick(node, 700)
            story.settle(*nodes)
            story.drop()


def with_all(story: Story) -> None:
    """Ten rounds that reach everybody, and in which no message is lost."""
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
    rounds(story, 3, 1)
    assert Role.LEADER not in (story.role(1), story.role(3))
    said = story.warnings(1)
    assert any("up to offset 20 and lost" in one and "from node 2:" in one for one in said), said
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


def test_records_of_a_later_epoch_heal_once_they_are_durable() -> None:
    # After a crash before the sync they are gone, and the memory of the cut has to be there.
    story = Story(initial={1: log(10, CUT), 2: log(20), 3: log(20)})
    story.tick(2, 2 * story.settings.election_timeout_ms)
    story.settle(2, 3)
    assert story.role(2) is Role.LEADER
    for _ in range(20):
        if story.flushes[1]:
            break
        story.tick(2, 100)
        while story.deliver(2, 1) or story.deliver(1, 2):
            pass
    assert story.flushes[1]
    assert story.cores[1].replica.log.last_epoch > CUT.epoch
    assert story.cores[1].cut is not None
    assert None not in persisted_cuts(story, 1)
    story.flush(1)
    assert story.cores[1].cut is None


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
