"""Leadership handed over: to a named voter, and by a stop."""

from __future__ import annotations

import pytest

from rlmm.raft.actions import (
    CommandDone,
    ProposalFailed,
    Role,
    SendRequest,
    SendResponse,
    ShutdownDone,
)
from rlmm.raft.events import RequestFailed, Shutdown, TransferLeadership
from rlmm.raft.messages import EndQuorumEpochRequest, Error, FetchResponse
from rlmm.raft.timers import RaftSettings
from tests.rlmm.raft.story import Story, key
from tests.rlmm.raft.test_leading import acknowledge, leading


def test_leadership_moves_to_the_named_voter_without_waiting_for_a_time_out() -> None:
    story = Story()
    story.elect(1)
    story.propose(1, "a")
    story.settle()
    began = story.now
    story.feed(1, TransferLeadership("t", key(3)))
    story.settle()
    assert story.now <= began + story.settings.commit_news_wait_max_ms
    assert story.role(3) is Role.LEADER
    assert any(isinstance(a, CommandDone) and a.error is Error.NONE for a in story.said[1])
    assert story.logs[3][-1].base_offset == 4


def test_a_transfer_refuses_records_and_ends_when_the_target_does_not_catch_up() -> None:
    story = leading()
    story.propose(1, "a")
    story.feed(1, TransferLeadership("t", key(2)))
    (refused,) = story.propose(1, "b")
    assert isinstance(refused, ProposalFailed)
    assert refused.error is Error.BROKER_NOT_AVAILABLE
    actions = story.tick(1, 2000)
    (done,) = [a for a in actions if isinstance(a, CommandDone)]
    assert done.error is Error.REQUEST_TIMED_OUT
    assert story.role(1) is Role.LEADER
    assert not any(isinstance(a, ProposalFailed) for a in story.propose(1, "c"))


@pytest.mark.parametrize(
    ("node", "target", "error", "says"),
    [
        (2, None, Error.NOT_LEADER_OR_FOLLOWER, "node 1 does"),
        (1, key(1), Error.VOTER_NOT_FOUND, "node 1 leads already: name one of the other voters"),
        (1, key(9), Error.VOTER_NOT_FOUND, "node 9 is not a voter"),
        (1, key(2, "old"), Error.VOTER_NOT_FOUND, "node 2 is not a voter with that directory id"),
    ],
)
def test_a_transfer_that_cannot_be_is_refused(
    node: int, target: object, error: Error, says: str
) -> None:
    story = leading()
    (done,) = story.feed(node, TransferLeadership("t", target))  # type: ignore[arg-type]  # a key
    assert isinstance(done, CommandDone)
    assert done.error is error
    assert says in done.message


def test_the_fetch_by_which_the_target_has_all_ends_the_leadership() -> None:
    story = leading()
    story.propose(1, "a")
    story.feed(1, TransferLeadership("t", key(2)))
    story.flush(1)
    assert story.role(1) is Role.LEADER
    acknowledge(story, 2, story.cores[1].log_end_offset)
    assert story.role(1) is Role.RESIGNED
    (answer,) = [a.response for a in story.said[1] if isinstance(a, SendResponse)][-1:]
    assert isinstance(answer, FetchResponse)
    assert answer.error is Error.NOT_LEADER_OR_FOLLOWER


def test_one_transfer_at_a_time() -> None:
    story = leading()
    story.propose(1, "a")
    story.feed(1, TransferLeadership("first", key(2)))
    (refused,) = story.feed(1, TransferLeadership("second", key(3)))
    assert isinstance(refused, CommandDone)
    assert (refused.handle, refused.error) == ("second", Error.REQUEST_TIMED_OUT)


def test_a_clean_stop_hands_over_before_it_closes() -> None:
    story = Story()
    story.elect(1)
    began = story.now
    story.feed(1, Shutdown())
    assert not any(isinstance(a, ShutdownDone) for a in story.said[1])
    story.settle()
    assert any(isinstance(a, ShutdownDone) for a in story.said[1])
    assert story.now <= began + story.settings.commit_news_wait_max_ms
    assert Role.LEADER in (story.role(2), story.role(3))
    assert story.role(1) is not Role.LEADER


def test_the_leader_that_is_named_may_be_node_0() -> None:
    story = Story((0, 1, 2))
    story.elect(0)
    (done,) = story.feed(1, TransferLeadership("t", None))
    assert isinstance(done, CommandDone)
    assert done.message == "this node does not lead; node 0 does"


def test_without_a_leader_none_is_named() -> None:
    (done,) = Story().feed(1, TransferLeadership("t", None))
    assert isinstance(done, CommandDone)
    assert (done.error, done.message) == (Error.NOT_LEADER_OR_FOLLOWER, "")


def test_a_notice_that_failed_was_not_told() -> None:
    story = leading()
    story.feed(1, Shutdown())
    notices = [
        each.request_id
        for each in story.said[1]
        if isinstance(each, SendRequest) and isinstance(each.request, EndQuorumEpochRequest)
    ]
    story.drop()
    for request_id in notices:
        assert ShutdownDone() not in story.feed(1, RequestFailed(request_id))
    assert ShutdownDone() in story.tick(1, 1000)


def test_a_stop_ends_within_its_bound_when_nobody_answers() -> None:
    story = leading()
    story.feed(1, Shutdown())
    story.drop()
    assert any(isinstance(a, ShutdownDone) for a in story.tick(1, 1000))
    assert story.role(1) is Role.RESIGNED


def test_a_stop_that_outlasts_the_election_timer_leaves_nothing_due() -> None:
    story = Story(settings=RaftSettings(election_timeout_ms=100, shutdown_timeout_ms=1000))
    story.elect(1)
    story.feed(1, Shutdown())
    story.drop()
    for _ in range(4):
        story.tick(1, 200)
        story.drop()
        assert story.cores[1].next_deadline_ms() > story.now


def test_a_follower_stops_at_once() -> None:
    story = leading()
    assert ShutdownDone() in story.feed(2, Shutdown())
