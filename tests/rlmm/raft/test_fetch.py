"""Fetch on both sides, the epoch cache, truncation, flush completions."""

from __future__ import annotations

import pytest

from rlmm.raft.actions import (
    ANOTHER_QUORUM,
    AppendBatches,
    Fatal,
    Flush,
    PersistedState,
    Role,
    SendRequest,
    SendResponse,
    TruncateTo,
    Warn,
)
from rlmm.raft.epoch_cache import EpochCache
from rlmm.raft.events import FlushCompleted, RequestReceived, ResponseReceived, Shutdown
from rlmm.raft.fetch_validation import validate
from rlmm.raft.messages import (
    Batch,
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    LeaderChange,
    ReplicaKey,
    SnapshotId,
    VotersRecord,
)
from rlmm.raft.replica import InitialState, LogView
from tests.rlmm.raft.story import Story, key, persisted, voter_set

S30 = SnapshotId(30, 3)


def log_view(start: int = 0, base_epoch: int = 0, *snapshots: SnapshotId) -> LogView:
    """Epochs 1 from 0, 3 from 20, 4 from 40; the log ends at 50."""
    entries = tuple((epoch, begin) for epoch, begin in ((1, 0), (3, 20), (4, 40)))
    cache = EpochCache(0, 0, entries)
    if start:
        cache.advance_start(start, 50)
        assert cache.base_epoch == base_epoch
    return LogView(start, 50, 50, cache, dict.fromkeys(snapshots, 10))


@pytest.mark.parametrize(
    ("log", "offset", "epoch", "verdict"),
    [
        (log_view(), 0, 0, None),
        (log_view(), 10, 1, None),
        (log_view(), 20, 1, None),
        (log_view(), 21, 1, EpochEnd(1, 20)),
        (log_view(), 10, 2, EpochEnd(1, 20)),
        (log_view(), 25, 2, EpochEnd(1, 20)),
        (log_view(), 40, 3, None),
        (log_view(), 45, 4, None),
        (log_view(), 50, 4, None),
        (log_view(), 51, 4, EpochEnd(4, 50)),
        (log_view(), 5, 0, EpochEnd(0, 0)),
        (log_view(0, 0, S30), 0, 0, S30),
        (log_view(0, 0, SnapshotId(0, 0)), 0, 0, None),
        (log_view(0, 0, S30), 10, 1, None),
        (log_view(30, 3, S30), 29, 3, S30),
        (log_view(30, 3, S30), 0, 0, S30),
        (log_view(30, 3, S30), 30, 3, None),
        (log_view(30, 3, S30), 30, 1, S30),
        (log_view(30, 3, S30), 30, 4, S30),
        (log_view(30, 3, S30), 35, 1, S30),
        (log_view(30, 3, S30), 35, 3, None),
        (log_view(30, 3, S30), 41, 3, EpochEnd(3, 40)),
        (log_view(20, 1, S30), 20, 1, None),
        (log_view(20, 1, S30), 25, 2, EpochEnd(1, 20)),
    ],
)
def test_a_fetch_offset_is_compared_with_the_leaders_epochs(
    log: LogView, offset: int, epoch: int, verdict: EpochEnd | SnapshotId | None
) -> None:
    assert validate(log, offset, epoch) == verdict


def test_a_follower_knows_when_it_heard_of_its_leader_and_how_far_that_is() -> None:
    story = Story()
    assert story.cores[2].leader_heard_ms == -1
    story.elect(1)
    story.tick(1, 500)
    story.settle()
    committed = story.cores[1].high_watermark
    assert (story.cores[2].leader_heard_ms, story.cores[2].leader_high_watermark) == (
        story.now,
        committed,
    )
    heard_ms = story.now
    story.drop()
    for node_id in (1, 2, 3):
        story.tick(node_id, story.settings.fetch_timeout_ms)
        story.drop()
    assert (story.cores[2].leader_heard_ms, story.cores[2].leader_high_watermark) == (
        heard_ms,
        committed,
    )


def test_a_leader_that_resigned_remembers_until_when_it_led() -> None:
    story = leading()
    story.tick(1, story.settings.check_quorum_ms)
    assert story.role(1) is Role.RESIGNED
    assert story.cores[1].leader_heard_ms == story.now


# ---- the leader's side


def fetch(
    offset: int,
    last_epoch: int,
    *,
    epoch: int = 1,
    replica: ReplicaKey | None = None,
    known: int = -1,
    wait_ms: int = 500,
) -> FetchRequest:
    return FetchRequest(replica or key(2), epoch, offset, last_epoch, wait_ms, 1 << 20, known)


def leading() -> Story:
    """Node 1 leads, nothing is parked there, and whatever was under way is lost."""
    story = Story()
    story.elect(1)
    story.tick(1, 500)
    story.drop()
    return story


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(0, 0, epoch=0), Error.FENCED_LEADER_EPOCH),
        (fetch(0, 0, epoch=2), Error.UNKNOWN_LEADER_EPOCH),
        (fetch(-1, 0), Error.INVALID_REQUEST),
        (fetch(0, -1), Error.INVALID_REQUEST),
        (fetch(3, 2), Error.INVALID_REQUEST),
        (fetch(3, 1, replica=key(-1)), Error.INVALID_REQUEST),
        (fetch(3, 1, replica=key(1)), Error.STALE_BROKER_EPOCH),
    ],
)
def test_a_leader_refuses_what_cannot_be(request_: FetchRequest, error: Error) -> None:
    story = leading()
    answer = story.request(1, request_)
    assert isinstance(answer, FetchResponse)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (error, 1, 1)
    assert story.role(1) is Role.LEADER


def test_followers_name_the_leader_and_resigned_leaders_name_nobody() -> None:
    story = leading()
    by_follower = story.request(2, fetch(3, 1, replica=key(3)))
    assert isinstance(by_follower, FetchResponse)
    assert by_follower.error is Error.NOT_LEADER_OR_FOLLOWER
    assert by_follower.leader_id == 1
    story.feed(1, Shutdown())
    leaving = story.request(1, fetch(3, 1))
    assert isinstance(leaving, FetchResponse)
    assert leaving.error is Error.BROKER_NOT_AVAILABLE
    assert leaving.leader_id == -1


def test_a_fetch_is_parked_until_the_log_grows() -> None:
    story = leading()
    assert story.feed(1, RequestReceived("f", fetch(3, 1, known=3))) == []
    actions = story.propose(1, "a")
    kinds = [type(each) for each in actions]
    assert kinds == [AppendBatches, SendResponse, Flush], "write, wake, then flush"


def test_a_fetch_is_parked_no_longer_than_it_says_nor_than_a_quarter_of_the_time_out() -> None:
    story = leading()
    story.feed(1, RequestReceived("f", fetch(3, 1, known=3, wait_ms=100_000)))
    assert story.tick(1, 499) == []
    (answer,) = [each for each in story.tick(1, 1) if isinstance(each, SendResponse)]
    assert answer.correlation == "f"


def test_a_replicas_newer_fetch_answers_its_older_one() -> None:
    story = leading()
    story.feed(1, RequestReceived("old", fetch(3, 1, known=3)))
    actions = story.feed(1, RequestReceived("new", fetch(3, 1, known=3)))
    assert [a.correlation for a in actions if isinstance(a, SendResponse)] == ["old"]


def test_stepping_down_fails_what_is_parked() -> None:
    story = leading()
    story.feed(1, RequestReceived("f", fetch(3, 1, known=3)))
    actions = story.tick(1, 3000)
    assert story.role(1) is Role.RESIGNED
    (answer,) = [each.response for each in actions if isinstance(each, SendResponse)]
    assert isinstance(answer, FetchResponse)
    assert answer.error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_diverging_fetch_acknowledges_nothing() -> None:
    story = leading()
    story.propose(1, "a")
    story.flush(1)
    answer = story.request(1, fetch(9, 0))
    assert isinstance(answer, FetchResponse)
    assert answer.diverging == EpochEnd(0, 0)
    assert story.cores[1].high_watermark == 3


# ---- the follower's side


def following(*, end: int = 0, epoch: int = 2, committed: int = 0) -> Story:
    """Node 2 follows node 1 in epoch 5, with `end` records of `epoch`."""
    initial = InitialState(
        quorum=PersistedState(5, 1),
        log_end_offset=end,
        epochs=((epoch, 0),) if end else (),
        committed_offset=committed,
    )
    story = Story(initial={2: initial})
    assert story.role(2) is Role.FOLLOWER
    return story


def answer_fetch(story: Story, response: FetchResponse) -> list[object]:
    """To node 2's fetch under way."""
    envelope = next(e for e in story.mail if e.source == 2)
    story.mail.remove(envelope)
    return list(story.feed(2, ResponseReceived(envelope.request_id, response)))


def records(base: int, count: int, epoch: int) -> Batch:
    return Batch(base, epoch, count, 100, f"{base}")


def response(*batches: Batch, high_watermark: int = -1, **fields: object) -> FetchResponse:
    return FetchResponse(
        Error.NONE,
        1,
        5,
        high_watermark,
        batches=batches,
        **fields,  # type: ignore[arg-type]  # as given by the test
    )


def test_the_next_fetch_waits_for_the_flush() -> None:
    # KAFKA-10533, and KAFKA-17332 for observers.
    for node in (2, 4):
        story = Story((1, 2, 3), (4,))
        story.elect(1)
        story.tick(node, 100)
        story.settle()
        story.propose(1, "a")
        while not story.flushes[node]:
            assert story.deliver(), f"node {node} never gets the record"
        assert not [e for e in story.mail if e.source == node and not e.answer]
        story.flush(node)
        (sent,) = [e.body for e in story.mail if e.source == node and not e.answer]
        assert isinstance(sent, FetchRequest)
        assert sent.fetch_offset == 4


def test_a_follower_takes_the_lower_of_both_high_watermarks_and_applies_what_is_durable() -> None:
    story = following()
    answer_fetch(story, response(records(0, 4, 5), high_watermark=9))
    core = story.cores[2]
    assert (core.high_watermark, core.apply_to) == (4, 0)
    story.flush(2)
    assert (core.high_watermark, core.apply_to) == (4, 4)


def test_the_high_watermark_never_goes_back() -> None:
    story = following(end=8, epoch=5, committed=6)
    answer_fetch(story, response(high_watermark=5))
    assert story.cores[2].high_watermark == 6
    answer_fetch(story, response(high_watermark=-1))
    assert story.cores[2].high_watermark == 6


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        (EpochEnd(2, 6), 6),
        (EpochEnd(1, 4), 0),
        (EpochEnd(1, 60), 0),
    ],
)
def test_a_diverging_log_is_truncated_to_where_it_may_agree(diverging: EpochEnd, end: int) -> None:
    story = following(end=10)
    actions = answer_fetch(story, response(diverging=diverging))
    assert [a.end_offset for a in actions if isinstance(a, TruncateTo)] == [end]
    assert story.cores[2].log_end_offset == end


def test_a_diverging_answer_truncates_first_and_raises_no_high_watermark() -> None:
    # KAFKA-9491, KAFKA-14704
    story = following(end=10, committed=3)
    answer_fetch(story, response(diverging=EpochEnd(2, 6), high_watermark=9))
    core = story.cores[2]
    assert (core.log_end_offset, core.high_watermark) == (6, 3)
    answer_fetch(story, response(records(6, 4, 5), high_watermark=9))
    assert core.high_watermark == 9


def test_divergence_below_the_high_watermark_stops_the_node() -> None:
    story = following(end=10, committed=7)
    actions = answer_fetch(story, response(diverging=EpochEnd(2, 6)))
    assert isinstance(actions[-1], Fatal)
    assert not any(isinstance(each, TruncateTo) for each in actions)
    assert story.tick(2, 10_000) == []


@pytest.mark.parametrize(
    "diverging", [EpochEnd(2, 60), EpochEnd(2, 10), EpochEnd(3, 4), EpochEnd(1, -1)]
)
def test_a_divergence_that_cannot_be_truncates_nothing_and_is_not_asked_for_at_full_speed(
    diverging: EpochEnd,
) -> None:
    # KAFKA-10706
    story = following(end=10)
    actions = answer_fetch(story, response(diverging=diverging))
    assert [type(each) for each in actions] == [Warn]
    assert "a diverging epoch that cannot be" in story.warnings(2)[0]
    assert not any(isinstance(each, SendRequest) for each in story.tick(2, 20))
    assert any(isinstance(each, SendRequest) for each in story.tick(2, 100))
    assert story.cores[2].log_end_offset == 10


@pytest.mark.parametrize(
    "batches",
    [
        (records(5, 1, 5),),
        (records(0, 2, 6),),
        (records(0, 2, 5), records(2, 2, 4)),
        (records(0, 2, 5), records(3, 2, 5)),
        (records(0, 0, 5),),
    ],
)
def test_batches_that_do_not_continue_the_log_are_dropped(batches: tuple[Batch, ...]) -> None:
    # KAFKA-18723
    story = following()
    good = sum(1 for each in batches if each.base_offset == 0 and each.epoch == 5)
    answer_fetch(story, response(*batches))
    kept = 2 if good and len(batches) > 1 else 0
    assert story.cores[2].log_end_offset == kept
    assert story.warnings(2)


def begun_with(*voters: int, **places: int) -> Batch:
    """The first batch of a leader of epoch 5, which has these voters."""
    return Batch(places.get("at", 0), 5, 1, 0, control=(LeaderChange(1, voters, voters),))


@pytest.mark.parametrize(
    "batch",
    [
        begun_with(1),
        begun_with(1, 2),
        begun_with(1, 2, 3, 4),
        Batch(0, 5, 1, 0, control=(VotersRecord(voter_set(1)),)),
        Batch(0, 5, 1, 0, control=(VotersRecord(voter_set(1, 2, 3, 4, 5)),)),
    ],
)
def test_a_leader_of_another_quorum_under_the_same_cluster_id_is_not_followed(batch: Batch) -> None:
    """A voter that lost its disk and was formatted as the only one leads a quorum of its own."""
    story = following()
    heard_ms = story.cores[2].leader_heard_ms
    answer_fetch(story, response(batch))
    core = story.cores[2]
    assert core.log_end_offset == 0
    assert core.leader_heard_ms == heard_ms  # no sign of life: it is given up
    assert "with other voters than this log has" in story.warnings(2)[0]
    assert ANOTHER_QUORUM in [each.trouble for each in story.said[2] if isinstance(each, Warn)]


def test_a_leader_begins_with_the_voters_of_the_log_and_changes_one_at_a_time() -> None:
    story = following()
    four = Batch(1, 5, 1, 0, control=(VotersRecord(voter_set(1, 2, 3, 4)),))
    answer_fetch(story, response(begun_with(1, 2, 3), four))
    assert story.cores[2].log_end_offset == 2
    assert story.cores[2].voters == voter_set(1, 2, 3, 4)


@pytest.mark.parametrize(
    "late",
    [
        FetchResponse(Error.NONE, 1, 4, batches=(records(0, 1, 4),)),
        FetchResponse(Error.NONE, 3, 5, batches=(records(0, 1, 5),)),
        FetchResponse(Error.UNKNOWN_LEADER_EPOCH, 1, 5),
    ],
)
def test_only_the_leader_followed_in_the_epoch_of_the_request_is_believed(
    late: FetchResponse,
) -> None:
    story = following()
    answer_fetch(story, late)
    assert story.cores[2].log_end_offset == 0
    assert story.cores[2].leader_id == 1


def test_an_answer_of_a_higher_epoch_moves_the_follower_on() -> None:
    story = following()
    actions = answer_fetch(story, FetchResponse(Error.FENCED_LEADER_EPOCH, 3, 7))
    assert persisted([each for each in actions if each]) == [(7, 3, -1)]  # type: ignore[misc]  # actions
    assert story.cores[2].leader_id == 3
    (sent,) = [e for e in story.mail if e.source == 2]
    assert sent.target == 3


def test_an_observer_without_a_leader_asks_the_voters_in_turn() -> None:
    story = Story((1, 2, 3), (4,))
    asked = []
    for _ in range(6):
        asked += [e.target for e in story.mail if e.source == 4]
        story.drop(4)
        story.tick(4, 1000)
        story.tick(4, 20)
    assert set(asked) == {1, 2, 3}


def test_a_lost_fetch_is_repeated_before_the_leader_is_taken_for_dead() -> None:
    story = following()
    story.drop(2)
    story.tick(2, 1000)
    story.tick(2, 20)
    assert story.role(2) is Role.FOLLOWER
    assert [e.target for e in story.mail if e.source == 2] == [1]


# ---- flush completions


def test_a_completion_of_an_older_generation_or_another_epoch_is_ignored() -> None:
    # etcd's async_storage_writes_append_aba_race
    story = following(end=10)
    answer_fetch(story, response(diverging=EpochEnd(2, 6)))
    answer_fetch(story, response(records(6, 3, 5), high_watermark=9))
    core = story.cores[2]
    assert core.apply_to == 6
    story.feed(2, FlushCompleted(2, 10, 0))
    story.feed(2, FlushCompleted(5, 9, 0))
    story.feed(2, FlushCompleted(4, 9, 1))
    story.feed(2, FlushCompleted(5, 99, 1))
    assert core.apply_to == 6
    assert not [e for e in story.mail if e.source == 2]
    story.flush(2)
    assert core.apply_to == 9


def test_an_observer_that_knows_no_leader_asks_without_a_wait() -> None:
    story = Story((1, 2, 3), (4,))
    story.elect(1)
    story.tick(4, 1)
    asked = [
        each.request
        for each in story.said[4]
        if isinstance(each, SendRequest) and isinstance(each.request, FetchRequest)
    ]
    assert asked[0].wait_max_ms == 0
    story.settle()
    for _ in range(3):
        story.tick(4, 500)
        story.settle()
    asked = [
        each.request
        for each in story.said[4]
        if isinstance(each, SendRequest) and isinstance(each.request, FetchRequest)
    ]
    assert asked[-1].wait_max_ms == story.settings.fetch_wait_max_ms
