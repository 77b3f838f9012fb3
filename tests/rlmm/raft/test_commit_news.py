"""How a follower hears of commits: with the next records, soon without any, and by the answer to
what it handed on.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlmm.raft.actions import (
    Action,
    AdvanceHighWatermark,
    AppendBatches,
    PersistedState,
    SendResponse,
)
from rlmm.raft.damaged_tail import NO_MEMORY
from rlmm.raft.events import CommitLearned, FlushCompleted, RequestReceived
from rlmm.raft.messages import FetchRequest, FetchResponse
from rlmm.raft.replica import InitialState
from tests.rlmm.raft.story import Story, key

WAIT_MS = 5


def committed() -> Story:
    """Node 1 leads in epoch 1; "a", at offset 3, is committed, and nobody else knows."""
    story = Story()
    assert story.settings.commit_news_wait_max_ms == WAIT_MS
    story.elect(1)
    story.propose(1, "a")
    for node in (2, 3):
        story.deliver(1, node)
        story.flush(node)
        story.deliver(node, 1)
    story.flush(1)
    assert story.cores[1].high_watermark == 4
    assert [story.cores[node].high_watermark for node in (2, 3)] == [3, 3]
    return story


def fetched(actions: Sequence[Action]) -> list[FetchResponse]:
    answers = [each.response for each in actions if isinstance(each, SendResponse)]
    return [each for each in answers if isinstance(each, FetchResponse)]


def test_the_next_records_take_the_news_along() -> None:
    story = committed()
    answers = fetched(story.propose(1, "b"))
    assert [(each.high_watermark, each.read is not None) for each in answers] == [(4, True)] * 2


def test_without_records_the_news_goes_soon_and_once() -> None:
    # KIP-1166, KAFKA-14145
    story = committed()
    assert fetched(story.tick(1, WAIT_MS - 1)) == []
    answers = fetched(story.tick(1, 1))
    assert [(each.high_watermark, each.read) for each in answers] == [(4, None)] * 2
    assert fetched(story.tick(1, WAIT_MS)) == []


def test_a_fetch_that_lacks_the_news_already_waits_no_longer() -> None:
    story = committed()
    story.tick(1, WAIT_MS)
    story.drop(1)
    story.tick(2, story.settings.fetch_request_timeout_ms)  # its answer is lost
    story.tick(2, story.settings.retry_backoff_ms)
    assert fetched(story.deliver(2, 1)) == []
    (answer,) = fetched(story.tick(1, WAIT_MS))
    assert answer.high_watermark == 4


def test_a_fetch_that_would_wait_less_waits_no_longer_for_the_news() -> None:
    story = Story()
    story.elect(1)
    story.drop()
    story.propose(1, "a")
    short = FetchRequest(key(3), 1, 4, 1, WAIT_MS - 3, 1 << 20, 3)
    assert fetched(story.feed(1, RequestReceived("short", short))) == []
    assert fetched(story.flush(1)) == []
    assert story.cores[1].high_watermark == 4
    (answer,) = fetched(story.tick(1, WAIT_MS - 3))
    assert answer.high_watermark == 4


def learn(story: Story, epoch: int, end_offset: int) -> int:
    """Node 2's high watermark behind it."""
    story.feed(2, CommitLearned(epoch, end_offset))
    return story.cores[2].high_watermark


def test_the_answer_to_what_was_handed_on_tells_it_at_once() -> None:
    story = committed()
    (advance,) = story.feed(2, CommitLearned(1, 4))
    assert advance == AdvanceHighWatermark(4, 4)


def test_no_more_is_committed_than_the_own_log_has_nor_applied_than_is_durable() -> None:
    story = Story()
    story.elect(1)
    story.propose(1, "a")
    assert any(isinstance(each, AppendBatches) for each in story.deliver(1, 2))
    (advance,) = story.feed(2, CommitLearned(1, 100))
    assert advance == AdvanceHighWatermark(4, 3)
    wanted = story.flushes[2].popleft()
    done = story.feed(2, FlushCompleted(wanted.epoch, wanted.offset, wanted.generation))
    assert AdvanceHighWatermark(4, 4) in done


@pytest.mark.parametrize("epoch", [-1, 0, 2])
def test_another_epochs_commit_says_nothing_of_this_log(epoch: int) -> None:
    assert learn(committed(), epoch, 4) == 3


def test_it_never_goes_back() -> None:
    story = committed()
    assert learn(story, 1, 4) == 4
    assert learn(story, 1, 3) == 4


def test_a_log_that_may_leave_the_leaders_learns_nothing() -> None:
    """Node 2 follows in epoch 5, and its own records are of epoch 2: others may be committed."""
    initial = InitialState(quorum=PersistedState(5, 1), log_end_offset=9, epochs=((2, 0),))
    story = Story(initial={2: initial})
    assert learn(story, 5, 9) == 0


def test_a_leader_and_a_candidate_learn_nothing() -> None:
    story = committed()
    story.feed(1, CommitLearned(1, 100))
    assert story.cores[1].high_watermark == 4
    story.drop(1)
    story.tick(2, 10_000)
    assert learn(story, 1, 4) == 3


def test_who_counts_for_nothing_learns_by_its_fetches_alone() -> None:
    story = committed()
    formatted_again = story.cores[2].replica
    formatted_again.cut, formatted_again.state.voted = NO_MEMORY, None
    assert learn(story, 1, 4) == 3
