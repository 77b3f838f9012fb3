"""A voter whose address changed tells the leader, and the voter set says so from then on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.raft.core import RaftCore
from rlmm.raft.events import RequestFailed, RequestReceived, TransferLeadership
from rlmm.raft.messages import (
    AddVoterRequest,
    Error,
    ReplicaKey,
    UpdateVoterRequest,
    UpdateVoterResponse,
    Voter,
)
from tests.rlmm.raft.story import Story, key, voter_set

ELSEWHERE = ("another host",)


def moved(story: Story, node_id: int, endpoints: tuple[object, ...] = ELSEWHERE) -> None:
    """As if the node had been started with them."""
    story.cores[node_id].replica.endpoints = endpoints


def endpoints(core: RaftCore, node_id: int) -> tuple[object, ...]:
    (voter,) = (each for each in core.voters.voters if each.key.node_id == node_id)
    return voter.endpoints


def led_by_1() -> Story:
    story = Story()
    story.elect(1)
    story.propose(1, "a")
    story.settle()
    return story


def updates(story: Story) -> list[UpdateVoterRequest]:
    return [each.body for each in story.mail if isinstance(each.body, UpdateVoterRequest)]


def test_a_follower_that_moved_tells_the_leader_and_everybody_learns_it() -> None:
    story = led_by_1()
    moved(story, 2)
    story.propose(1, "b")
    story.settle()
    for core in story.cores.values():
        assert endpoints(core, 2) == ELSEWHERE
        assert not core.uncommitted_voter_change
    assert voter_set(1, 2, 3).keys == story.cores[1].voters.keys
    before = story.cores[1].log_end_offset
    story.tick(2, 10_000)
    story.settle()
    assert updates(story) == []
    assert story.cores[1].log_end_offset <= before + 1  # nothing but what keeps a leader


def test_it_asks_again_when_nobody_answered() -> None:
    story = led_by_1()
    moved(story, 2)
    story.tick(2)
    (sent,) = (each for each in story.mail if isinstance(each.body, UpdateVoterRequest))
    story.mail.remove(sent)
    story.feed(2, RequestFailed(sent.request_id))
    assert updates(story) == []
    story.tick(2, story.settings.fetch_timeout_ms // 2 - 1)
    assert updates(story) == []
    story.tick(2, 1)
    assert updates(story) == [UpdateVoterRequest(1, Voter(key(2), ELSEWHERE))]


def test_a_leader_that_moved_says_so_in_the_first_batch_of_its_epoch() -> None:
    story = led_by_1()
    moved(story, 2)
    moved(story, 1, ("and this one",))
    story.feed(1, TransferLeadership("t", key(2)))
    story.settle()
    assert story.cores[2].role.value == "leader"
    # A voter set is not changed before the new leader has committed in its epoch.
    story.tick(1, story.settings.fetch_timeout_ms // 2)
    story.settle()
    story.tick(1, story.settings.retry_backoff_ms)
    story.settle()
    for core in story.cores.values():
        assert endpoints(core, 2) == ELSEWHERE
        assert endpoints(core, 1) == ("and this one",)


def test_a_replica_that_is_told_nothing_of_itself_changes_nothing() -> None:
    story = led_by_1()
    moved(story, 2, ())
    story.propose(1, "b")
    story.settle()
    assert updates(story) == []
    assert endpoints(story.cores[1], 2) == ()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epoch": 0}, Error.FENCED_LEADER_EPOCH),
        ({"epoch": 7}, Error.UNKNOWN_LEADER_EPOCH),
        ({"voter": Voter(key(4), ELSEWHERE)}, Error.VOTER_NOT_FOUND),
        ({"voter": Voter(ReplicaKey(2, "another disk"), ELSEWHERE)}, Error.VOTER_NOT_FOUND),
        ({"voter": Voter(key(2), ())}, Error.INVALID_REQUEST),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    change: dict[str, object], error: Error
) -> None:
    story = led_by_1()
    end = story.cores[1].log_end_offset
    good = UpdateVoterRequest(1, Voter(key(2), ELSEWHERE))
    answer = story.request(1, replace(good, **change))  # type: ignore[arg-type]  # as a test says
    assert answer == UpdateVoterResponse(error, 1, 1)
    assert story.cores[1].log_end_offset == end


def test_one_change_of_the_voters_at_a_time() -> None:
    story = led_by_1()
    story.drop()
    good = UpdateVoterRequest(1, Voter(key(2), ELSEWHERE))
    assert story.request(1, good) == UpdateVoterResponse(Error.NONE, 1, 1)
    end = story.cores[1].log_end_offset
    assert story.request(1, good) == UpdateVoterResponse(Error.REQUEST_TIMED_OUT, 1, 1)
    other = replace(good, voter=Voter(key(3), ELSEWHERE))
    assert story.request(1, other) == UpdateVoterResponse(Error.REQUEST_TIMED_OUT, 1, 1)
    assert story.cores[1].log_end_offset == end
    story = led_by_1()
    story.feed(1, RequestReceived("add", AddVoterRequest(Voter(key(4)), 1_000)))
    assert story.request(1, good) == UpdateVoterResponse(Error.REQUEST_TIMED_OUT, 1, 1)


def test_only_a_leader_is_asked() -> None:
    story = led_by_1()
    good = UpdateVoterRequest(1, Voter(key(2), ELSEWHERE))
    assert story.request(3, good) == UpdateVoterResponse(Error.NOT_LEADER_OR_FOLLOWER, 1, 1)
