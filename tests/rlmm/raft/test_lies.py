"""Peers that say what cannot be, and processes that share an identity: refused with a line that
says what to do; nothing is acknowledged and nothing truncated by it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.raft.actions import Fatal, PersistedState, PersistQuorumState, Role
from rlmm.raft.events import ResponseReceived
from rlmm.raft.identity import INCARNATIONS_MAX, is_older
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    ReplicaKey,
    SnapshotId,
    UpdateVoterRequest,
    Voter,
    VoteRequest,
    VoteResponse,
)
from rlmm.raft.quorum_state import EPOCH_MAX
from rlmm.raft.replica import InitialState, StoredSnapshot
from tests.rlmm.raft.story import Story, key, voter_set
from tests.rlmm.raft.test_fetch import answer_fetch, following, records, response

FRESH = ReplicaKey(2, "a new disk")


def leading_two_epochs() -> Story:
    """Node 1 leads epoch 2; its log is epoch 1 up to offset 4 (exclusive), then 2 up to 8."""
    initial = InitialState(
        quorum=PersistedState(1, -1), log_end_offset=4, epochs=((1, 0),), committed_offset=4
    )
    story = Story(initial={1: initial, 2: initial, 3: initial})
    story.elect(1)
    story.propose(1, "a")
    story.settle()
    assert (story.cores[1].epoch, story.cores[1].high_watermark) == (2, 8)
    story.drop()
    return story


def fetch(offset: int, last_epoch: int, replica: ReplicaKey | None = None) -> FetchRequest:
    return FetchRequest(replica or key(2), 2, offset, last_epoch, 0, 1 << 20)


@pytest.mark.parametrize("claim", [fetch(9, 2), fetch(2**62, 2), fetch(3, 2), fetch(4, 2)], ids=str)
def test_a_log_that_was_never_written_acknowledges_nothing(claim: FetchRequest) -> None:
    story = leading_two_epochs()
    answer = story.request(1, claim)
    assert isinstance(answer, FetchResponse)
    assert (answer.error, answer.read, answer.diverging) == (Error.INVALID_REQUEST, None, None)
    (line,) = story.warnings(1)
    assert "which was never written: refused" in line
    assert "remove it as a voter and format it anew" in line
    story.propose(1, "b")
    assert story.cores[1].high_watermark == 8


@pytest.mark.parametrize(
    ("honest", "diverging"),
    [
        (fetch(4, 1), None),
        (fetch(2, 1), None),
        (fetch(8, 2), None),
        (fetch(9, 1), EpochEnd(1, 4)),
        (fetch(9, 0), EpochEnd(0, 0)),
    ],
    ids=str,
)
def test_what_can_be_is_answered_and_not_warned_about(
    honest: FetchRequest, diverging: EpochEnd | None
) -> None:
    story = leading_two_epochs()
    answer = story.request(1, honest)
    assert isinstance(answer, FetchResponse)
    assert (answer.error, answer.diverging) == (Error.NONE, diverging)
    assert story.warnings(1) == []


def test_a_leader_that_answers_nonsense_is_given_up_like_one_that_is_silent() -> None:
    nonsense = (
        response(diverging=EpochEnd(7, 2)),
        response(snapshot=SnapshotId(5, 2)),
        response(snapshot=SnapshotId(2**62, 99)),
        response(records(3, 1, 5)),
        response(records(10, 1, 9)),
    )
    for each in nonsense:
        story = following(end=10, committed=7)
        for _ in range(100):
            answer_fetch(story, each)
            story.tick(2, 100)
            if story.role(2) is not Role.FOLLOWER:
                break
        assert story.role(2) is Role.PROSPECTIVE, each
        assert story.cores[2].log_end_offset == 10
        assert story.warnings(2)


def test_an_empty_log_behind_a_snapshot_that_is_to_go_back_below_it_stops_and_says_why() -> None:
    behind = InitialState(
        quorum=PersistedState(6, 1),
        log_start_offset=800,
        log_start_epoch=5,
        log_end_offset=800,
        snapshots=(StoredSnapshot(SnapshotId(800, 5), 10),),
        committed_offset=800,
    )
    story = Story(initial={2: behind})
    answer = FetchResponse(Error.NONE, 1, 6, 900, 0, diverging=EpochEnd(3, 10))
    actions = answer_fetch(story, answer)
    assert isinstance(actions[-1], Fatal)
    assert "leaves this one at offset 10" in actions[-1].message
    assert story.cores[2].log_end_offset == 800


def test_a_high_watermark_beyond_the_log_commits_what_is_there_and_no_more() -> None:
    story = following(end=10, committed=7)
    answer_fetch(story, response(records(10, 2, 5), high_watermark=2**62))
    story.flush(2)
    core = story.cores[2]
    assert (core.log_end_offset, core.high_watermark, core.apply_to) == (12, 12, 12)
    answer_fetch(story, response(high_watermark=-7))
    assert core.high_watermark == 12


def test_a_vote_from_another_epoch_is_nobodys_vote() -> None:
    story = Story()
    story.tick(1, 2 * story.settings.election_timeout_ms)
    story.mail = [each for each in story.mail if each.source == 1]
    for epoch in (0, 1):
        asked = [each for each in story.mail if each.source == 1]
        story.drop()
        role = story.role(1)
        for each in asked:
            lie = VoteResponse(Error.NONE, -1, epoch - 1, vote_granted=True)
            story.feed(1, ResponseReceived(each.request_id, lie))
        assert story.role(1) is role
        story.tick(1, 100)
        for each in [each for each in story.mail if each.source == 1]:
            truth = VoteResponse(Error.NONE, -1, epoch, vote_granted=True)
            story.feed(1, ResponseReceived(each.request_id, truth))
        if epoch == 0:
            assert story.role(1) is Role.CANDIDATE
        else:
            assert story.role(1) is Role.LEADER


SNAPSHOT = SnapshotId(6, 2)
VOTE = VoteRequest(3, key(2), key(1), 2, 8, pre_vote=False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (replace(VOTE, epoch=-1), "wants a vote in epoch -1 for a log up to offset 8 in epoch 2"),
        (replace(VOTE, epoch=EPOCH_MAX + 1), f"wants a vote in epoch {EPOCH_MAX + 1} for a log"),
        (replace(VOTE, last_epoch=3), "wants a vote in epoch 3 for a log up to offset 8 in epoch"),
        (replace(VOTE, last_offset=-8), "wants a vote in epoch 3 for a log up to offset -8"),
        (BeginQuorumEpochRequest(2, -1, key(1)), "says that it leads epoch -1"),
        (BeginQuorumEpochRequest(2, EPOCH_MAX + 1, key(1)), f"says that it leads epoch {2**31}"),
        (EndQuorumEpochRequest(2, -1, ()), "says that it leads epoch -1"),
        (fetch(-1, 2), "fetches in epoch 2 behind offset -1 in epoch 2"),
        (fetch(8, -1), "fetches in epoch 2 behind offset 8 in epoch -1"),
        (fetch(8, 3), "fetches in epoch 2 behind offset 8 in epoch 3"),
        (FetchSnapshotRequest(key(2), 2, SNAPSHOT, 0, -1), "asks for -1 bytes of a snapshot"),
    ],
    ids=str,
)
def test_what_no_replica_would_ask_is_refused_and_said(asked: PeerRequest, said: str) -> None:
    story = leading_two_epochs()
    story.cores[1].replica.log.snapshots[SNAPSHOT] = 100
    answer = story.request(1, asked)
    assert getattr(answer, "error", None) is Error.INVALID_REQUEST
    (line,) = story.warnings(1)
    assert line.startswith(f"node 2 {said}")
    assert "which cannot be: refused. Its data directory is damaged, or it is another" in line
    assert (story.role(1), story.cores[1].epoch) == (Role.LEADER, 2)


def test_the_last_epoch_has_a_leader() -> None:
    story = leading_two_epochs()
    answer = story.request(1, BeginQuorumEpochRequest(2, EPOCH_MAX, key(1)))
    assert getattr(answer, "error", None) is Error.NONE
    assert (story.role(1), story.cores[1].epoch) == (Role.FOLLOWER, EPOCH_MAX)


@pytest.mark.parametrize(
    "asked",
    [
        replace(VOTE, epoch=1, last_epoch=0),
        BeginQuorumEpochRequest(2, 1, key(1)),
        EndQuorumEpochRequest(2, 1, ()),
        replace(fetch(4, 1), epoch=1),
        FetchSnapshotRequest(key(2), 1, SNAPSHOT, 0, 100),
        UpdateVoterRequest(1, Voter(key(2), ())),
    ],
    ids=str,
)
def test_who_asks_in_an_old_epoch_is_told_the_present_one_and_the_log_says_so(
    asked: PeerRequest,
) -> None:
    story = leading_two_epochs()
    answer = story.request(1, asked)
    assert getattr(answer, "error", None) is Error.FENCED_LEADER_EPOCH
    (line,) = story.warnings(1)
    assert line.startswith("node 2 asks in epoch 1, and this one knows of epoch 2: refused")
    assert "check that the node reaches the others" in line


@pytest.mark.parametrize("bytes_max", [0, -1, -(2**31)])
def test_a_snapshot_is_not_sent_whole_to_who_asks_for_less_than_nothing(bytes_max: int) -> None:
    story = leading_two_epochs()
    story.cores[1].replica.log.snapshots[SnapshotId(6, 2)] = 1 << 30
    piece = FetchSnapshotRequest(key(2), 2, SnapshotId(6, 2), 0, bytes_max)
    answer = story.request(1, piece)
    assert isinstance(answer, FetchSnapshotResponse)
    assert (answer.error, answer.read) == (Error.INVALID_REQUEST, None)


def test_a_wiped_voter_does_not_vote_as_the_old_one_and_is_told_what_to_do() -> None:
    story = Story()
    asked = VoteRequest(1, key(2), ReplicaKey(1, "before the wipe"), 0, 0, pre_vote=False)
    answer = story.request(1, asked)
    assert isinstance(answer, VoteResponse)
    assert (answer.error, answer.vote_granted) == (Error.INVALID_VOTER_KEY, False)
    begin = BeginQuorumEpochRequest(2, 1, asked.voter)
    told = story.request(1, begin)
    assert isinstance(told, BeginQuorumEpochResponse)
    assert told.error is Error.INVALID_VOTER_KEY
    for line in story.warnings(1):
        assert "quorum remove-voter 1 --directory-id before the wipe" in line
        assert "then add-voter with the new one" in line
    story.request(1, replace(asked, voter=key(7)))
    assert "asks node 7 at the address of node 1: refused; check the addr" in story.warnings(1)[-1]


def test_a_node_with_a_voters_id_and_another_directory_follows_without_a_vote() -> None:
    story = leading_two_epochs()
    for _ in range(3):
        answer = story.request(1, fetch(8, 2, FRESH))
        assert isinstance(answer, FetchResponse)
        assert answer.error is Error.NONE
    (line,) = story.warnings(1)
    assert "node 2 fetches with the directory id a new disk, and the voter 2 has d2" in line
    story.propose(1, "b")
    story.flush(1)
    story.request(1, fetch(9, 2, FRESH))
    assert story.cores[1].high_watermark == 8
    story.request(1, fetch(9, 2))
    assert story.cores[1].high_watermark == 9


# ---- one directory, two processes


def test_of_two_processes_with_one_directory_the_older_one_is_refused() -> None:
    story = leading_two_epochs()
    old, new = (replace(fetch(8, 2), incarnation=each) for each in (40, 41))
    errors = []
    for each in (old, new, old, new):
        answer = story.request(1, each)
        assert isinstance(answer, FetchResponse)
        errors.append(answer.error)
    assert errors == [Error.NONE, Error.NONE, Error.STALE_BROKER_EPOCH, Error.NONE]
    assert "two processes run as node 2" in story.warnings(1)[0]
    story.propose(1, "b")
    story.flush(1)
    story.request(1, replace(old, fetch_offset=9))
    assert story.cores[1].high_watermark == 8


def test_the_older_process_stops_and_says_why() -> None:
    story = following(end=10)
    actions = answer_fetch(story, replace(response(), error=Error.STALE_BROKER_EPOCH))
    (stopped,) = actions
    assert isinstance(stopped, Fatal)
    assert "another process with this node's identity (node 2, directory id d2)" in stopped.message
    assert "a data directory was copied" in stopped.message
    story = Story()
    story.tick(1, 2 * story.settings.election_timeout_ms)
    (asked, _) = (each for each in story.mail if each.source == 1)
    refused = VoteResponse(Error.STALE_BROKER_EPOCH, -1, 0)
    (stopped,) = story.feed(1, ResponseReceived(asked.request_id, refused))
    assert isinstance(stopped, Fatal)


def test_an_epochs_vote_goes_to_one_process_even_where_two_have_one_identity() -> None:
    story = Story()
    first = VoteRequest(1, key(2), key(1), 0, 0, pre_vote=False, incarnation=40)
    granted = []
    for each in (first, first, replace(first, incarnation=41), first):
        answer = story.request(1, each)
        assert isinstance(answer, VoteResponse)
        granted.append((answer.error, answer.vote_granted))
    assert granted == [
        (Error.NONE, True),
        (Error.NONE, True),
        (Error.NONE, False),
        (Error.STALE_BROKER_EPOCH, False),
    ]
    assert "two processes ask for a vote in epoch 1 as node 2" in story.warnings(1)[0]


def test_a_vote_of_an_earlier_life_is_not_given_again_to_what_may_be_another_process() -> None:
    story = Story()
    first = VoteRequest(1, key(2), key(1), 0, 0, pre_vote=False, incarnation=40)
    story.request(1, first)
    *_, given = (each.state for each in story.said[1] if isinstance(each, PersistQuorumState))
    story.start(1, InitialState(given, format_voters=voter_set(1, 2, 3)))
    asking = (replace(first, incarnation=41), replace(first, incarnation=-1))
    answers = [story.request(1, each) for each in asking]
    assert [answer.vote_granted for answer in answers] == [False, True]  # type: ignore[attr-defined]
    next_epoch = story.request(1, replace(first, epoch=2, incarnation=41))
    assert isinstance(next_epoch, VoteResponse)
    assert next_epoch.vote_granted


def test_the_older_process_does_not_disturb_those_who_have_a_leader() -> None:
    story = leading_two_epochs()
    story.request(1, replace(fetch(8, 2), incarnation=41))
    asked = VoteRequest(9, key(2), key(1), 2, 6, pre_vote=True, incarnation=40)
    answer = story.request(1, asked)
    assert isinstance(answer, VoteResponse)
    assert (answer.error, story.cores[1].epoch) == (Error.STALE_BROKER_EPOCH, 2)


def test_replicas_that_do_not_count_their_starts_are_left_alone() -> None:
    story = leading_two_epochs()
    for incarnation in (-1, 5, -1, -1, 6):
        answer = story.request(1, replace(fetch(8, 2), incarnation=incarnation))
        assert isinstance(answer, FetchResponse)
        assert answer.error is Error.NONE
    assert story.warnings(1) == []


def test_what_is_remembered_of_processes_is_bounded() -> None:
    replica = Story().cores[1].replica
    for number in range(INCARNATIONS_MAX + 10):
        assert not is_older(replica, ReplicaKey(number, "d"), 1)
    assert len(replica.incarnations) == INCARNATIONS_MAX
