"""Standing for election, restarts, and what EndQuorumEpoch changes about both."""

from __future__ import annotations

import pytest

from rlmm.raft.actions import (
    AppendBatches,
    Fatal,
    PersistedState,
    PersistQuorumState,
    Role,
    SendRequest,
)
from rlmm.raft.events import RequestFailed, ResponseReceived
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    LeaderChange,
    SnapshotId,
    VoteRequest,
    VoteResponse,
    VotersRecord,
)
from rlmm.raft.replica import InitialState, StoredSnapshot
from rlmm.raft.timers import RaftSettings
from tests.rlmm.raft.story import Story, key, persisted


def test_an_election_goes_through_pre_vote_and_vote() -> None:
    story = Story()
    story.tick(1, 1000)
    assert story.role(1) is Role.PROSPECTIVE
    assert story.cores[1].epoch == 0
    story.settle()
    core = story.cores[1]
    assert story.role(1) is Role.LEADER
    assert core.epoch == 1
    assert core.established
    assert persisted(story.said[1]) == [(1, -1, 1), (1, 1, 1)]
    assert [story.cores[node].leader_id for node in (2, 3)] == [1, 1]


def test_an_epoch_begins_with_its_leader_change_and_a_log_with_its_voters() -> None:
    story = Story()
    story.elect(1)
    first = story.logs[1][0]
    assert first.base_offset == 0
    assert isinstance(first.control[0], LeaderChange)
    assert first.control[0].voters == (1, 2, 3)
    assert 1 in first.control[0].granting
    assert isinstance(first.control[2], VotersRecord)
    story.drop()
    story.tick(1, 3000)
    story.elect(2)
    assert [type(each) for each in story.logs[2][-1].control] == [LeaderChange]


def test_leadership_is_persisted_before_the_leader_change_is_appended() -> None:
    # KAFKA-18389: and the vote stays stored beside it.
    story = Story()
    story.elect(1)
    kinds = [type(each) for each in story.said[1]]
    states = [i for i, each in enumerate(kinds) if each is PersistQuorumState]
    assert states[-1] < kinds.index(AppendBatches)
    assert persisted(story.said[1])[-1] == (1, 1, 1)


def test_a_sole_voter_leads_at_once_and_commits_only_what_it_has_synced() -> None:
    # etcd #14370, KAFKA-16144/16163.
    story = Story((1,))
    core = story.cores[1]
    assert story.role(1) is Role.LEADER
    assert core.high_watermark == 0
    assert not core.established
    story.flush(1)
    assert core.high_watermark == 3
    story.propose(1, "a")
    assert core.high_watermark == 3
    story.flush(1)
    assert core.high_watermark == 4
    story.tick(1, 1_000_000)
    assert story.role(1) is Role.LEADER


def test_only_voters_stand() -> None:
    # KAFKA-17067
    story = Story((1, 2, 3), (4,))
    story.tick(4, 100_000)
    assert story.role(4) is Role.UNATTACHED
    assert not [e for e in story.mail if e.source == 4 and isinstance(e.body, VoteRequest)]


def test_a_lost_pre_vote_ends_in_the_same_epoch_with_the_same_vote() -> None:
    story = Story()
    story.request(1, VoteRequest(4, key(3), key(1), 0, 0, False))
    story.tick(1, 1000)
    assert story.role(1) is Role.PROSPECTIVE
    for envelope in [e for e in story.mail if isinstance(e.body, VoteRequest)]:
        refusal = VoteResponse(Error.NONE, -1, 4, False, 3, 9)
        story.feed(1, ResponseReceived(envelope.request_id, refusal))
    assert story.role(1) is Role.UNATTACHED
    assert story.cores[1].epoch == 4
    refused = story.request(1, VoteRequest(4, key(2), key(1), 0, 0, False))
    assert isinstance(refused, VoteResponse)
    assert not refused.vote_granted


def test_a_peer_that_knows_no_pre_vote_does_not_stop_an_election() -> None:
    # etcd #8501: enabling pre-vote in a rolling upgrade must not deadlock.
    story = Story()
    story.tick(1, 1000)
    envelope = next(e for e in story.mail if isinstance(e.body, VoteRequest))
    story.feed(1, RequestFailed(envelope.request_id, unsupported_version=True))
    assert story.role(1) is Role.CANDIDATE
    assert story.cores[1].epoch == 1


def test_a_candidate_that_times_out_asks_for_pre_votes_in_its_epoch() -> None:
    story = Story()
    story.tick(1, 1000)
    story.deliver(1, 2)
    story.deliver(2, 1)
    assert story.role(1) is Role.CANDIDATE
    story.drop()
    story.tick(1, 1000)
    assert story.role(1) is Role.PROSPECTIVE
    assert story.cores[1].epoch == 1


def test_a_follower_that_was_cut_off_does_not_raise_the_epoch_nor_unseat_the_leader() -> None:
    # KIP-996: for ten minutes nobody answers, and then everybody does.
    story = Story()
    story.elect(1)
    for _ in range(2000):
        story.tick(3, 300)
        story.drop(3)
        story.drop(target=3)
        story.tick(1)
        story.tick(2)
        story.settle(1, 2)
    assert story.cores[3].epoch == 1
    assert story.role(1) is Role.LEADER
    for _ in range(20):
        for node in (1, 2, 3):
            story.tick(node, 100)
            story.settle()
    assert [story.cores[node].leader_id for node in (1, 2, 3)] == [1, 1, 1]
    assert {story.cores[node].epoch for node in (1, 2, 3)} == {1}


def test_pre_votes_do_not_alternate_for_ever_when_the_leader_is_gone() -> None:
    # KAFKA-17641: followers that went back to a dead leader still grant pre-votes.
    story = Story()
    story.elect(1)
    story.drop(1)
    story.drop(target=1)
    for step in range(40):
        story.tick(2 + step % 2, 700)
        story.settle(2, 3)
        story.drop(target=1)
        if Role.LEADER in (story.role(2), story.role(3)):
            break
    assert Role.LEADER in (story.role(2), story.role(3))


def test_prospective_and_resigned_write_nothing() -> None:
    story = Story()
    story.elect(1)
    before = len(persisted(story.said[2]))
    story.drop()
    story.tick(2, 2000)
    assert story.role(2) is Role.PROSPECTIVE
    assert len(persisted(story.said[2])) == before
    before = len(persisted(story.said[1]))
    story.tick(1, 3000)
    assert story.role(1) is Role.RESIGNED
    assert len(persisted(story.said[1])) == before


def test_the_first_preferred_successor_stands_at_once_the_next_ones_wait() -> None:
    story = Story((1, 2, 3, 4, 5))
    story.elect(1)
    end = EndQuorumEpochRequest(1, 1, (key(3), key(2), key(4)))
    roles = {}
    for node in (2, 3, 4, 5):
        story.request(node, end)
        roles[node] = story.role(node)
    assert roles == {
        2: Role.FOLLOWER,
        3: Role.PROSPECTIVE,
        4: Role.FOLLOWER,
        5: Role.FOLLOWER,
    }
    waits = [story.cores[node].replica.state.deadline_ms - story.now for node in (2, 4, 5)]  # type: ignore[union-attr]  # followers have a deadline
    assert waits[0] < waits[1] < waits[2] == story.settings.election_backoff_max_ms


def test_a_resigned_leader_does_not_follow_itself() -> None:
    # KAFKA-18379
    story = Story()
    story.elect(1)
    story.drop()
    story.tick(1, 3000)
    core = story.cores[1]
    assert story.role(1) is Role.RESIGNED
    answer = story.request(1, BeginQuorumEpochRequest(1, 1, key(1)))
    assert answer.error is Error.INVALID_REQUEST  # type: ignore[attr-defined]  # a response
    assert story.role(1) is Role.RESIGNED
    story.tick(1, 1000)
    assert story.role(1) is Role.UNATTACHED
    assert core.epoch == 2
    assert core.leader_id == -1


def test_epochs_end_before_they_overflow() -> None:
    last = 2**31 - 1
    story = Story(initial={1: InitialState(quorum=PersistedState(last))})
    story.tick(1, 1000)
    story.settle()
    assert story.cores[1].epoch == last
    assert isinstance(story.said[1][-1], Fatal)


# ---- restarts

LOG = InitialState(log_end_offset=9, epochs=((3, 0),))


@pytest.mark.parametrize(
    ("quorum", "role", "epoch", "leader_id"),
    [
        (PersistedState(3, 1, key(1)), Role.RESIGNED, 3, 1),
        (PersistedState(3, 2, key(2)), Role.FOLLOWER, 3, 2),
        (PersistedState(3, 8), Role.UNATTACHED, 3, 8),
        (PersistedState(5, -1, key(1)), Role.UNATTACHED, 5, -1),
        (PersistedState(2, 1, key(1)), Role.UNATTACHED, 3, -1),
    ],
)
def test_a_restart_begins_by_what_is_stored(
    quorum: PersistedState, role: Role, epoch: int, leader_id: int
) -> None:
    initial = InitialState(quorum=quorum, log_end_offset=9, epochs=((3, 0),))
    core = Story(initial={1: initial}).cores[1]
    assert (core.role, core.epoch, core.leader_id) == (role, epoch, leader_id)


def test_a_restarted_leader_gives_no_vote_in_its_epoch() -> None:
    initial = InitialState(quorum=PersistedState(3, 1, key(1)))
    answer = Story(initial={1: initial}).request(1, VoteRequest(3, key(2), key(1), 2, 9, False))
    assert isinstance(answer, VoteResponse)
    assert not answer.vote_granted


def test_a_remembered_leader_without_address_still_forbids_other_votes() -> None:
    initial = InitialState(quorum=PersistedState(3, 8))
    answer = Story(initial={1: initial}).request(1, VoteRequest(3, key(2), key(1), 2, 9, False))
    assert isinstance(answer, VoteResponse)
    assert not answer.vote_granted


@pytest.mark.parametrize(
    ("initial", "why"),
    [
        (InitialState(log_end_offset=9, epochs=((3, 0),)), "quorum state is missing"),
        (
            InitialState(PersistedState(3), log_start_offset=5, log_end_offset=9),
            "no snapshot covers",
        ),
        (
            InitialState(PersistedState(3), log_start_offset=1, log_end_offset=9),
            "no snapshot covers",
        ),
        (
            InitialState(
                PersistedState(3),
                log_start_offset=5,
                log_end_offset=9,
                snapshots=(StoredSnapshot(SnapshotId(4, 1), 9),),
            ),
            "no snapshot covers",
        ),
    ],
)
def test_a_start_that_could_lose_something_is_refused(initial: InitialState, why: str) -> None:
    # KAFKA-14240 for the missing prefix.
    story = Story(initial={1: initial})
    last = story.said[1][-1]
    assert isinstance(last, Fatal)
    assert why in last.message
    assert story.tick(1, 10_000) == []


def test_the_first_successor_stands_at_once_and_each_further_one_later() -> None:
    waits = [RaftSettings().successor_backoff(position) for position in range(4)]
    assert waits[0] == 0
    assert waits == sorted(set(waits))


def test_late_answers_of_an_earlier_round_count_for_nothing() -> None:
    story = Story()
    story.tick(1, 1000)
    old = [e.request_id for e in story.mail if isinstance(e.body, VoteRequest)]
    story.tick(1, 1000)
    story.tick(1, 1000)
    assert story.role(1) is Role.PROSPECTIVE
    for request_id in old:
        story.feed(1, ResponseReceived(request_id, VoteResponse(Error.NONE, -1, 0, True)))
    assert story.role(1) is Role.PROSPECTIVE
    assert any(isinstance(each, SendRequest) for each in story.said[1])


@pytest.mark.parametrize("name", ["election_timeout_ms", "retry_backoff_ms"])
def test_timeouts_have_to_be_positive(name: str) -> None:
    """Tests and small quorums may have them as short as the clock allows."""
    given = {name: 0}
    with pytest.raises(ValueError, match="must be positive"):
        RaftSettings(**given)
    assert getattr(RaftSettings(**{name: 1}), name) == 1
