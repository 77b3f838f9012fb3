"""High watermark, proposals, barriers, check-quorum, describe."""

from __future__ import annotations

import pytest

from rlmm.raft.actions import (
    PersistedState,
    ProposalFailed,
    ProposalsCommitted,
    Role,
    RoleChanged,
    SendRequest,
    WaitersDone,
    WaitersFailed,
)
from rlmm.raft.events import (
    AtLeastRequested,
    BarrierRequested,
    FlushCompleted,
    Propose,
    ProposedBatch,
    RequestReceived,
    Shutdown,
    WaiterCancelled,
)
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    NoOp,
    VoteRequest,
)
from rlmm.raft.replica import InitialState
from rlmm.raft.timers import RaftSettings
from tests.rlmm.raft.story import Story, key


def leading(voters: tuple[int, ...] = (1, 2, 3), observers: tuple[int, ...] = ()) -> Story:
    """Node 1 leads, nothing is parked there, and whatever was under way is lost."""
    story = Story(voters, observers)
    story.elect(1)
    story.tick(1, 500)
    story.drop()
    return story


def acknowledge(story: Story, node: int, offset: int, known: int = -1, leader: int = 1) -> None:
    core = story.cores[leader]
    last_epoch = core.epoch_of(offset - 1)
    request = FetchRequest(key(node), core.epoch, offset, last_epoch, 500, 1 << 20, known)
    story.feed(leader, RequestReceived(("ack", node, story.now), request))


def with_an_older_record() -> Story:
    """Node 2 leads epoch 2; four records of epoch 1 are before its own three (4 to 6)."""
    log = InitialState(PersistedState(1), log_end_offset=4, epochs=((1, 0),), committed_offset=3)
    story = Story(initial={2: log})
    story.tick(2, 1000)
    while story.role(2) is not Role.LEADER:
        assert story.mail
        story.deliver()
    story.drop()
    story.flush(2)
    assert story.cores[2].log_end_offset == 7
    return story


# ---- high watermark


def test_the_leader_counts_itself_only_as_far_as_it_has_synced() -> None:
    # etcd #14370: with a flush in another thread this is what loses records.
    story = leading()
    story.propose(1, "a")
    acknowledge(story, 2, 4)
    assert story.cores[1].high_watermark == 3
    story.flush(1)
    assert story.cores[1].high_watermark == 4


def test_two_followers_commit_without_the_leaders_own_sync_and_it_applies_later() -> None:
    story = leading()
    story.propose(1, "a")
    acknowledge(story, 2, 4)
    acknowledge(story, 3, 4)
    assert (story.cores[1].high_watermark, story.cores[1].apply_to) == (4, 3)
    story.flush(1)
    assert story.cores[1].apply_to == 4


def test_records_of_older_epochs_commit_only_with_one_of_the_own_epoch() -> None:
    # Raft, figure 8.
    story = with_an_older_record()
    acknowledge(story, 3, 4, leader=2)
    assert story.cores[2].high_watermark == 3
    acknowledge(story, 3, 7, leader=2)
    assert story.cores[2].high_watermark == 7


def test_a_new_leader_tells_no_high_watermark_until_it_has_committed_in_its_epoch() -> None:
    story = with_an_older_record()
    answer = story.request(2, FetchRequest(key(3), 2, 4, 1, 0, 1 << 20))
    assert isinstance(answer, FetchResponse)
    assert answer.high_watermark == -1
    assert story.cores[2].high_watermark == 3
    acknowledge(story, 3, 7, leader=2)
    answer = story.request(2, FetchRequest(key(1), 2, 0, 0, 0, 1 << 20))
    assert isinstance(answer, FetchResponse)
    assert answer.high_watermark == 7


def test_it_is_established_only_when_it_may_apply_its_own_epoch() -> None:
    # KAFKA-17333
    story = Story()
    story.tick(1, 1000)
    while story.role(1) is not Role.LEADER:
        story.deliver()
    story.drop()
    acknowledge(story, 2, 3)
    acknowledge(story, 3, 3)
    assert (story.cores[1].high_watermark, story.cores[1].apply_to) == (3, 0)
    assert not story.cores[1].established
    actions = story.flush(1)
    assert [a.established for a in actions if isinstance(a, RoleChanged)] == [True]


# ---- proposals


def test_a_proposal_is_acknowledged_when_committed_in_its_epoch() -> None:
    story = leading()
    story.propose(1, "a", 2)
    story.propose(1, "b")
    story.flush(1)
    story.flush(1)
    before = len(story.said[1])
    acknowledge(story, 2, 6)
    told = [a.proposals for a in story.said[1][before:] if isinstance(a, ProposalsCommitted)]
    assert told == [(("a", 3), ("b", 5))]


def test_losing_leadership_leaves_the_outcome_unknown() -> None:
    # KAFKA-13114
    story = leading()
    story.propose(1, "a")
    actions = story.feed(
        1, RequestReceived("v", VoteRequest(7, key(2), key(1), 1, 9, pre_vote=False))
    )
    (failed,) = [a for a in actions if isinstance(a, ProposalFailed)]
    assert failed.handle == "a"
    assert failed.appended


@pytest.mark.parametrize(
    ("node", "batches", "epoch", "error"),
    [
        (2, (ProposedBatch(1, 10),), None, Error.NOT_LEADER_OR_FOLLOWER),
        (1, (ProposedBatch(1, 10),), 0, Error.NOT_LEADER_OR_FOLLOWER),
        (1, (ProposedBatch(1, 9 << 20),), None, Error.MESSAGE_TOO_LARGE),
        (1, (ProposedBatch(0, 1),), None, Error.INVALID_REQUEST),
        (1, (), None, Error.INVALID_REQUEST),
    ],
)
def test_a_refused_proposal_changes_nothing(
    node: int, batches: tuple[ProposedBatch, ...], epoch: int | None, error: Error
) -> None:
    story = leading()
    end = story.cores[node].log_end_offset
    (action,) = story.feed(node, Propose("a", batches, epoch))
    assert action == ProposalFailed("a", error, appended=False, leader_id=1)
    assert story.cores[node].log_end_offset == end


def test_the_queue_of_proposals_is_bounded() -> None:
    story = Story((1, 2, 3), settings=RaftSettings(proposals_max=2))
    story.elect(1)
    story.drop()
    story.propose(1, "a")
    story.propose(1, "b")
    (action,) = story.propose(1, "c")
    assert isinstance(action, ProposalFailed)
    assert action.error is Error.THROTTLING_QUOTA_EXCEEDED


# ---- barriers


def test_a_barrier_is_a_no_op_committed_by_a_majority() -> None:
    story = leading()
    story.feed(1, BarrierRequested("r"))
    assert story.logs[1][-1].control == (NoOp(),)
    assert story.flush(1) == []
    before = len(story.said[1])
    acknowledge(story, 2, 4)
    assert WaitersDone(("r",), 4) in story.said[1][before:]


def test_barriers_that_arrive_during_a_no_op_share_the_next_one() -> None:
    story = leading()
    for name in "abc":
        story.feed(1, BarrierRequested(name))
    assert story.cores[1].log_end_offset == 4
    story.flush(1)
    acknowledge(story, 2, 4)
    assert story.cores[1].log_end_offset == 5
    story.flush(1)
    before = len(story.said[1])
    acknowledge(story, 2, 5)
    assert WaitersDone(("b", "c"), 5) in story.said[1][before:]


def test_a_proposal_serves_waiting_barriers_as_well() -> None:
    story = leading()
    story.feed(1, BarrierRequested("a"))
    story.feed(1, BarrierRequested("b"))
    story.propose(1, "p")
    story.flush(1)
    story.flush(1)
    before = len(story.said[1])
    acknowledge(story, 2, 5)
    done = [a for a in story.said[1][before:] if isinstance(a, WaitersDone)]
    assert done == [WaitersDone(("a",), 4), WaitersDone(("b",), 5)]
    assert story.cores[1].log_end_offset == 5


def test_a_barrier_waits_until_its_offset_is_applicable_here() -> None:
    story = leading()
    story.feed(1, BarrierRequested("r"))
    acknowledge(story, 2, 4)
    acknowledge(story, 3, 4)
    assert story.cores[1].high_watermark == 4
    assert not any(isinstance(a, WaitersDone) for a in story.said[1])
    assert WaitersDone(("r",), 4) in story.flush(1)


def test_a_barrier_of_a_leader_that_was_replaced_fails() -> None:
    story = leading()
    story.feed(1, BarrierRequested("r"))
    actions = story.tick(1, 3000)
    assert WaitersFailed(("r",), Error.NOT_LEADER_OR_FOLLOWER) in actions
    (action,) = leading().feed(2, BarrierRequested("s"))
    assert action == WaitersFailed(("s",), Error.NOT_LEADER_OR_FOLLOWER, 1)


def test_waiters_that_were_given_up_take_no_room() -> None:
    story = Story()
    story.elect(1)
    waiting = story.cores[1].replica.at_least
    for number in range(500):
        story.feed(1, AtLeastRequested(number, 99))
        story.feed(1, WaiterCancelled(number))
    assert not waiting.live
    assert len(waiting.heap) <= 101
    story.feed(1, AtLeastRequested("it stays", 4))
    for number in range(500):
        story.feed(1, AtLeastRequested(number, 99))
        story.feed(1, WaiterCancelled(number))
    assert (len(waiting.live), len(waiting.heap) <= 103) == (1, True)
    story.propose(1, "a")
    story.settle()
    assert WaitersDone(("it stays",), 4) in story.said[1]


def test_a_read_of_at_least_an_offset_waits_for_it_on_any_node() -> None:
    story = Story()
    story.elect(1)
    assert story.feed(2, AtLeastRequested("now", 3)) == [WaitersDone(("now",), 3)]
    assert story.feed(2, AtLeastRequested("later", 4)) == []
    story.feed(2, AtLeastRequested("cancelled", 4))
    story.feed(2, WaiterCancelled("cancelled"))
    story.propose(1, "a")
    story.settle()
    done = [a for a in story.said[2] if isinstance(a, WaitersDone)]
    assert done[-1] == WaitersDone(("later",), 4)


def test_waiters_are_bounded() -> None:
    story = Story(settings=RaftSettings(waiters_max=1))
    story.elect(1)
    story.drop()
    story.feed(1, AtLeastRequested("a", 99))
    (refused,) = story.feed(1, AtLeastRequested("b", 99))
    assert refused == WaitersFailed(("b",), Error.THROTTLING_QUOTA_EXCEEDED)
    story.feed(1, BarrierRequested("c"))
    (refused,) = story.feed(1, BarrierRequested("d"))
    assert isinstance(refused, WaitersFailed)


# ---- liveness of the leader


def test_a_leader_whose_disk_syncs_nothing_resigns_though_followers_commit() -> None:
    story = leading()
    check_ms = story.settings.check_quorum_ms
    acknowledge(story, 2, 3)
    story.propose(1, "a")
    story.tick(1, check_ms - 1)
    acknowledge(story, 2, 4)
    acknowledge(story, 3, 4)
    story.propose(1, "b")
    assert (story.role(1), story.cores[1].high_watermark) == (Role.LEADER, 4)
    story.tick(1, 1)
    assert story.role(1) is Role.RESIGNED
    assert "has synced nothing" in story.warnings(1)[-1]
    told = [each.request for each in story.said[1] if isinstance(each, SendRequest)][-2:]
    assert all(isinstance(each, EndQuorumEpochRequest) for each in told)


def test_the_flush_of_a_log_that_was_replaced_is_no_sign_that_the_disk_works() -> None:
    story = leading()
    acknowledge(story, 2, 3)
    story.propose(1, "a")
    story.tick(1, story.settings.check_quorum_ms - 1)
    acknowledge(story, 2, 4)
    generation = story.cores[1].replica.log.generation
    story.feed(1, FlushCompleted(1, 4, generation - 1))
    story.tick(1, 1)
    assert story.role(1) is Role.RESIGNED


def test_a_slow_disk_that_gets_on_and_a_sole_voters_are_waited_for() -> None:
    story = leading()
    acknowledge(story, 2, 3)
    for number in range(4):
        story.propose(1, f"{number}")
        story.propose(1, f"{number} too")
        story.tick(1, story.settings.check_quorum_ms - 1)
        acknowledge(story, 2, story.cores[1].log_end_offset)
        story.flush(1)
    while story.flushes[1]:
        story.flush(1)
    acknowledge(story, 2, story.cores[1].log_end_offset)
    story.tick(1, story.settings.check_quorum_ms - 1)
    assert story.role(1) is Role.LEADER
    alone = leading((1,))
    alone.propose(1, "a")
    for _ in range(3):
        alone.tick(1, story.settings.check_quorum_ms)
    assert alone.role(1) is Role.LEADER


def test_a_leader_resigns_when_no_majority_fetches() -> None:
    story = leading()
    for _ in range(10):
        story.tick(1, 1000)
        acknowledge(story, 2, 3, known=3)
    assert story.role(1) is Role.LEADER
    story.tick(1, 2999)
    assert story.role(1) is Role.LEADER
    story.tick(1, 1)
    assert story.role(1) is Role.RESIGNED
    assert any("no majority" in each for each in story.warnings(1))
    told = [e.target for e in story.mail if isinstance(e.body, EndQuorumEpochRequest)]
    assert told == [2, 3]


def test_voters_that_do_not_fetch_are_told_again() -> None:
    story = leading()
    before = len(story.said[1])
    for _ in range(5):
        acknowledge(story, 2, 3, known=3)
        story.tick(1, 500)
    told = [
        each.destination
        for each in story.said[1][before:]
        if isinstance(each, SendRequest) and isinstance(each.request, BeginQuorumEpochRequest)
    ]
    assert told == [3]


# ---- describe


def test_describe_tells_where_every_replica_is() -> None:
    story = Story((1, 2, 3), (4,))
    story.elect(1)
    for _ in range(5):
        story.tick(4, 100)
        story.settle()
    answer = story.request(1, DescribeQuorumRequest())
    assert isinstance(answer, DescribeQuorumResponse)
    assert (answer.leader_id, answer.leader_epoch, answer.high_watermark) == (1, 1, 3)
    assert [(each.key.node_id, each.log_end_offset) for each in answer.voters] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    (observer,) = answer.observers
    assert observer.key == key(4)
    assert observer.log_end_offset == 3
    assert observer.last_caught_up_ms == observer.last_fetch_ms > 0
    refused = story.request(2, DescribeQuorumRequest())
    assert isinstance(refused, DescribeQuorumResponse)
    assert refused.error is Error.NOT_LEADER_OR_FOLLOWER


def test_describe_tells_who_never_fetched() -> None:
    story = Story()
    story.tick(1, 2 * story.settings.election_timeout_ms)
    while story.role(1) is not Role.LEADER:
        story.deliver()
    answer = story.request(1, DescribeQuorumRequest())
    assert isinstance(answer, DescribeQuorumResponse)
    assert [each.last_fetch_ms for each in answer.voters if each.key != key(1)] == [-1, -1]


def test_observers_are_bounded_and_forgotten_when_idle() -> None:
    story = Story((1,), settings=RaftSettings(observers_max=2))
    story.feed(1, FlushCompleted(1, 3, 0))
    for node in (11, 12, 13):
        acknowledge(story, node, 3, known=3)
    answer = story.request(1, DescribeQuorumRequest())
    assert isinstance(answer, DescribeQuorumResponse)
    assert [each.key.node_id for each in answer.observers] == [11, 12]
    story.tick(1, 300_001)
    answer = story.request(1, DescribeQuorumRequest())
    assert isinstance(answer, DescribeQuorumResponse)
    assert answer.observers == ()


def test_a_follower_that_shuts_down_fetches_no_more() -> None:
    story = Story()
    story.elect(1)
    story.feed(2, Shutdown())
    story.drop()
    story.tick(2, story.settings.fetch_request_timeout_ms)
    story.tick(2, story.settings.retry_backoff_ms)
    assert not [each for each in story.mail if each.source == 2]
