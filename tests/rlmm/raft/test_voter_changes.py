"""Adding and removing voters, one at a time (KIP-853), and arithmetic around them."""

from __future__ import annotations

from rlmm.raft.actions import (
    CommandDone,
    PersistedState,
    Role,
    RoleChanged,
    SendResponse,
    TruncateTo,
    VotersChanged,
)
from rlmm.raft.events import RequestReceived, ResponseReceived, TransferLeadership
from rlmm.raft.messages import (
    AddVoterRequest,
    EndQuorumEpochRequest,
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
    VoterChangeResponse,
    VoterSet,
    VotersRecord,
)
from rlmm.raft.replica import InitialState
from rlmm.raft.voters import VoterHistory
from tests.rlmm.raft.story import Story, key, voter_set


def with_observer() -> Story:
    """Node 1 leads 1, 2, 3; node 4 observes and has caught up."""
    story = Story((1, 2, 3), (4,))
    story.elect(1)
    for _ in range(5):
        story.tick(4, 50)
        story.settle()
    return story


def answers(story: Story, node: int = 1) -> list[VoterChangeResponse]:
    return [
        each.response
        for each in story.said[node]
        if isinstance(each, SendResponse) and isinstance(each.response, VoterChangeResponse)
    ]


def add(node_id: int = 4, wait_ms: int = 5000, *, ack: bool = True) -> AddVoterRequest:
    return AddVoterRequest(Voter(key(node_id)), wait_ms, ack)


def ask(story: Story, request: AddVoterRequest | RemoveVoterRequest, node: int = 1) -> None:
    story.feed(node, RequestReceived("operator", request))


def ids(story: Story, node: int = 1) -> list[int]:
    return [each.node_id for each in story.cores[node].voters.keys]


def test_a_voter_is_added_on_append_and_answered_at_commit() -> None:
    story = with_observer()
    ask(story, add())
    assert ids(story) == [1, 2, 3, 4]
    assert answers(story) == []
    assert story.cores[1].uncommitted_voter_change
    story.settle()
    assert answers(story) == [VoterChangeResponse(Error.NONE)]
    assert ids(story, 3) == [1, 2, 3, 4]
    assert story.cores[4].is_voter


def test_the_new_majority_commits_the_change() -> None:
    story = with_observer()
    story.drop()
    ask(story, add())
    end = story.cores[1].log_end_offset
    story.flush(1)
    for node, committed in ((2, False), (4, True)):
        fetch = FetchRequest(key(node), 1, end, 1, 500, 1 << 20, 3)
        story.feed(1, RequestReceived(("f", node), fetch))
        assert (story.cores[1].high_watermark == end) is committed


def test_the_caller_may_ask_to_be_answered_at_append() -> None:
    story = with_observer()
    ask(story, add(ack=False))
    assert answers(story) == [VoterChangeResponse(Error.NONE)]
    story.settle()
    assert len(answers(story)) == 1


def test_only_one_change_at_a_time() -> None:
    story = with_observer()
    ask(story, add())
    ask(story, RemoveVoterRequest(key(3), 5000))
    (refused,) = answers(story)
    assert refused.error is Error.REQUEST_TIMED_OUT
    assert ids(story) == [1, 2, 3, 4]
    story.settle()
    ask(story, RemoveVoterRequest(key(3), 5000))
    story.settle()
    assert ids(story) == [1, 2, 4]


def test_a_change_that_no_majority_commits_in_time_is_told_to_be_in_the_log() -> None:
    story = with_observer()
    story.drop()
    ask(story, add(wait_ms=300))
    for _ in range(4):
        story.tick(1, 100)
    (timed_out,) = answers(story)
    assert timed_out.error is Error.REQUEST_TIMED_OUT
    assert "is in the log and not committed" in timed_out.message


def test_a_change_of_voters_lets_no_transfer_begin() -> None:
    story = with_observer()
    ask(story, add())
    (refused,) = [
        each
        for each in story.feed(1, TransferLeadership("t", key(2)))
        if isinstance(each, CommandDone)
    ]
    assert refused.error is Error.REQUEST_TIMED_OUT
    story.settle()
    assert (story.role(1), ids(story)) == (Role.LEADER, [1, 2, 3, 4])


def test_a_change_waits_for_a_commit_in_the_leaders_own_epoch() -> None:
    # The known bug of the single-server method in the thesis.
    story = Story()
    story.tick(1, 1000)
    while story.role(1) is not Role.LEADER:
        story.deliver()
    ask(story, RemoveVoterRequest(key(3), 5000))
    (refused,) = answers(story)
    assert refused.error is Error.REQUEST_TIMED_OUT
    assert ids(story) == [1, 2, 3]


def test_a_commit_of_an_earlier_epoch_allows_no_change() -> None:
    """An open change of the leader before may have a majority that this one's does not meet."""
    story = Story()
    story.elect(1)
    story.propose(1, "committed in the first epoch")
    for _ in range(3):
        story.tick(2, 50)
        story.settle()
    assert story.cores[2].high_watermark > 0
    for _ in range(200):
        if story.role(2) is Role.LEADER:
            break
        story.drop(source=1)
        story.drop(target=1)
        for each in [m for m in story.mail if m.source == 3 and not m.answer]:
            story.mail.remove(each)  # it does not stand itself
        if story.mail:
            story.deliver()
        else:
            story.tick(2, 500)
            story.tick(3, 100)
    assert story.role(2) is Role.LEADER
    assert not story.cores[2].established
    for request in (RemoveVoterRequest(key(3), 5000), add()):
        ask(story, request, 2)
        assert answers(story, 2)[-1].error is Error.REQUEST_TIMED_OUT
    changed = Voter(key(3), ("another address",))
    story.feed(2, RequestReceived("moved", UpdateVoterRequest(story.cores[2].epoch, changed)))
    assert ids(story, 2) == [1, 2, 3]
    assert story.cores[2].voters == voter_set(1, 2, 3)


def test_requests_that_name_the_wrong_replica_are_refused() -> None:
    story = with_observer()
    for request, error in (
        (AddVoterRequest(Voter(key(3, "new disk")), 5000), Error.DUPLICATE_VOTER),
        (add(3), Error.DUPLICATE_VOTER),
        (RemoveVoterRequest(key(3, "new disk"), 5000), Error.VOTER_NOT_FOUND),
        (RemoveVoterRequest(key(4), 5000), Error.VOTER_NOT_FOUND),
    ):
        ask(story, request)
        assert answers(story)[-1].error is error
        assert answers(story)[-1].message
    ask(story, add(), node=2)
    assert answers(story, 2)[-1].error is Error.NOT_LEADER_OR_FOLLOWER
    assert ids(story) == [1, 2, 3]


def test_the_last_voter_stays() -> None:
    story = Story((1,))
    story.flush(1)
    ask(story, RemoveVoterRequest(key(1), 5000))
    assert answers(story)[-1].error is Error.INVALID_REQUEST


def test_a_new_voter_must_have_caught_up_and_time_is_bounded() -> None:
    story = with_observer()
    ask(story, add(9, 3000))
    assert ids(story) == [1, 2, 3]
    for _ in range(5):
        for node in (1, 2, 3, 4):
            story.tick(node, 100)
            story.settle()
    assert answers(story) == []
    story.tick(1)
    story.settle()
    caught_up = FetchRequest(key(9), 1, story.cores[1].log_end_offset, 1, 500, 1 << 20, 3)
    story.feed(1, RequestReceived("f", caught_up))
    assert ids(story) == [1, 2, 3, 9]

    late = with_observer()
    ask(late, add(9, 300))
    for _ in range(4):
        late.tick(1, 100)
    (timed_out,) = answers(late)
    assert timed_out.error is Error.REQUEST_TIMED_OUT
    assert "was not begun" in timed_out.message
    ask(late, RemoveVoterRequest(key(3), 5000))
    late.settle()
    assert ids(late) == [1, 2]


def test_a_leader_that_removes_itself_leads_on_until_that_is_committed_and_counts_not_itself() -> (
    None
):
    # KAFKA-16530/16531
    story = with_observer()
    story.drop()
    ask(story, RemoveVoterRequest(key(1), 5000))
    end = story.cores[1].log_end_offset
    story.flush(1)
    story.feed(1, RequestReceived("f2", FetchRequest(key(2), 1, end, 1, 500, 1 << 20, 3)))
    assert story.cores[1].high_watermark < end, "one of two voters is no majority"
    assert story.role(1) is Role.LEADER
    story.feed(1, RequestReceived("f3", FetchRequest(key(3), 1, end, 1, 500, 1 << 20, 3)))
    assert story.cores[1].high_watermark == end
    assert story.role(1) is Role.RESIGNED
    assert answers(story) == [VoterChangeResponse(Error.NONE)]
    told = [e.target for e in story.mail if isinstance(e.body, EndQuorumEpochRequest)]
    assert told == [2, 3]


def test_a_removed_leader_goes_on_as_an_observer() -> None:
    story = with_observer()
    ask(story, RemoveVoterRequest(key(1), 5000))
    story.settle()
    for _ in range(40):
        for node in (1, 2, 3, 4):
            story.tick(node, 100)
            story.settle()
    leaders = [node for node in (2, 3) if story.role(node) is Role.LEADER]
    assert len(leaders) == 1
    assert story.role(1) is Role.FOLLOWER
    assert story.cores[1].leader_id == leaders[0]
    assert not story.cores[1].is_voter


def test_a_voter_with_its_own_removal_uncommitted_still_stands_if_only_it_can_win() -> None:
    # Found by a seed: node 2 is gone for good, and node 3 alone has the longest log, in which it is
    # no voter. Nodes 1 and 4 cannot win against it, so it has to stand, without its own vote.
    old, new = voter_set(1, 2, 3, 4), voter_set(1, 2, 4)

    def log(end: int, *sets: tuple[int, VoterSet]) -> InitialState:
        return InitialState(
            PersistedState(2), log_end_offset=end, epochs=((2, 0),), voter_sets=sets
        )

    story = Story(
        (1, 2, 3),
        (4,),
        initial={
            1: log(5, (2, old)),
            3: log(9, (2, old), (8, new)),
            4: log(7, (2, old)),
        },
    )
    for _ in range(7):
        for node in (3, 1, 4):
            story.tick(node, 400)
            story.settle(1, 3, 4)
            story.drop(target=2)
    assert RoleChanged(Role.LEADER, 3, 3) in story.said[3]
    leader = next(node for node in (1, 4) if story.role(node) is Role.LEADER)
    assert story.cores[leader].high_watermark > 9
    assert ids(story, leader) == [1, 2, 4]
    assert story.role(3) is Role.FOLLOWER


def test_truncation_undoes_a_change() -> None:
    initial = InitialState(
        quorum=PersistedState(5, 1),
        log_end_offset=10,
        epochs=((2, 0),),
        voter_sets=((2, voter_set(1, 2, 3)), (8, voter_set(1, 2, 3, 4))),
    )
    story = Story(initial={2: initial})
    assert ids(story, 2) == [1, 2, 3, 4]
    envelope = next(e for e in story.mail if e.source == 2)
    diverging = FetchResponse(Error.NONE, 1, 5, diverging=EpochEnd(2, 6))
    actions = story.feed(2, ResponseReceived(envelope.request_id, diverging))
    assert [type(each) for each in actions][:2] == [TruncateTo, VotersChanged]
    assert ids(story, 2) == [1, 2, 3]


def test_a_follower_knows_a_change_when_it_appends_it() -> None:
    # etcd #7280: two sizes of the quorum at once.
    story = with_observer()
    ask(story, add())
    while not story.flushes[2]:
        story.deliver(1, 2) or story.deliver(2, 1)
    assert ids(story, 2) == [1, 2, 3, 4]
    assert story.cores[2].high_watermark < story.cores[2].log_end_offset


def test_a_wiped_disk_is_another_replica() -> None:
    story = with_observer()
    story.drop()
    story.propose(1, "a")
    story.flush(1)
    end = story.cores[1].log_end_offset
    wiped = ReplicaKey(2, "new disk")
    story.feed(1, RequestReceived("f", FetchRequest(wiped, 1, end, 1, 500, 1 << 20, 3)))
    assert story.cores[1].high_watermark < end


def test_voter_history_knows_sets_by_offset() -> None:
    history = VoterHistory(voter_set(1), ((5, voter_set(1, 2)), (9, voter_set(1, 2, 3))))
    assert history.committed(5) == voter_set(1)
    assert history.committed(6) == voter_set(1, 2)
    assert history.latest == voter_set(1, 2, 3)
    assert history.has_uncommitted(9)
    assert not history.has_uncommitted(10)
    assert history.truncate_to(9)
    assert not history.truncate_to(9)
    assert history.latest == voter_set(1, 2)
    history.reset(20, voter_set(4))
    assert history.latest_offset == 19
    assert VotersRecord(history.latest).voters == voter_set(4)
