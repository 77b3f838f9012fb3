"""Snapshots: taken, served, fetched piece by piece, installed in the place of the log (KIP-630)."""

from __future__ import annotations

import pytest

from rlmm.raft.actions import (
    AdvanceHighWatermark,
    Fatal,
    InstallSnapshot,
    PersistedState,
    Role,
    SendRequest,
    WriteSnapshotChunk,
)
from rlmm.raft.events import (
    FlushCompleted,
    LogStartAdvanced,
    RequestReceived,
    ResponseReceived,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotsDeleted,
    SnapshotTaken,
)
from rlmm.raft.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotId,
    SnapshotRead,
    VoteRequest,
)
from rlmm.raft.replica import InitialState, StoredSnapshot
from tests.rlmm.raft.story import SETTINGS, Story, key, voter_set

S5 = SnapshotId(5, 1)


def leading_with_records() -> Story:
    """Node 1 leads; offsets 3 to 8 are committed records."""
    story = Story()
    story.elect(1)
    for name in "abcdef":
        story.propose(1, name)
    story.settle()
    assert story.cores[1].high_watermark == 9
    return story


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (SnapshotId(5, 1), None),
        (SnapshotId(9, 1), None),
        (SnapshotId(10, 1), "high watermark"),
        (SnapshotId(5, 2), "epoch"),
        (SnapshotId(0, 0), "log start"),
    ],
)
def test_only_committed_records_are_snapshotted(snapshot: SnapshotId, why: str | None) -> None:
    refusal = leading_with_records().cores[1].snapshot_refusal(snapshot)
    assert refusal is None if why is None else why in (refusal or "")


def test_a_snapshot_is_not_taken_below_one_that_alone_names_the_voters() -> None:
    """A view that is behind its node's own snapshot after a crash: the format's voters, which the
    log's first record may have changed, would go into it.
    """
    story = Story(
        voters=(1,),
        initial={
            1: InitialState(
                PersistedState(1, 1),
                log_start_offset=4,
                log_start_epoch=1,
                log_end_offset=12,
                epochs=((1, 4),),
                snapshots=(StoredSnapshot(SnapshotId(9, 1), 100),),
                voter_sets=((8, voter_set(1, 2)),),
                committed_offset=12,
            )
        },
    )
    core = story.cores[1]
    refusal = core.snapshot_refusal(SnapshotId(8, 1))
    assert refusal is not None
    assert "voters" in refusal
    assert core.snapshot_refusal(SnapshotId(10, 1)) is None
    assert core.voters_at(10).keys == voter_set(1, 2).keys


def test_the_log_starts_only_where_a_snapshot_covers_what_is_gone() -> None:
    story = leading_with_records()
    story.feed(1, SnapshotTaken(S5, 100))
    story.feed(1, LogStartAdvanced(4))
    assert story.cores[1].replica.log.start_offset == 4
    assert isinstance(story.feed(1, LogStartAdvanced(6))[-1], Fatal)
    other = leading_with_records()
    other.feed(1, SnapshotTaken(S5, 100))
    other.feed(1, LogStartAdvanced(4))
    assert isinstance(other.feed(1, SnapshotsDeleted((S5,)))[-1], Fatal)


def test_a_replica_that_lacks_the_head_is_sent_to_the_newest_snapshot() -> None:
    story = leading_with_records()
    story.feed(1, SnapshotTaken(S5, 100))
    story.feed(1, LogStartAdvanced(5))
    answer = story.request(1, FetchRequest(key(9), 1, 0, 0, 500, 1 << 20))
    assert isinstance(answer, FetchResponse)
    assert answer.snapshot == S5
    assert answer.read is None


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (FetchSnapshotRequest(key(2), 1, S5, 40, 30), Error.NONE),
        (FetchSnapshotRequest(key(2), 1, SnapshotId(6, 1), 0, 30), Error.SNAPSHOT_NOT_FOUND),
        (FetchSnapshotRequest(key(2), 1, S5, 100, 30), Error.POSITION_OUT_OF_RANGE),
        (FetchSnapshotRequest(key(2), 1, S5, -1, 30), Error.POSITION_OUT_OF_RANGE),
        (FetchSnapshotRequest(key(2), 0, S5, 0, 30), Error.FENCED_LEADER_EPOCH),
        (FetchSnapshotRequest(key(2), 9, S5, 0, 30), Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_pieces_are_served_by_the_leader_only(request_: FetchSnapshotRequest, error: Error) -> None:
    story = leading_with_records()
    story.feed(1, SnapshotTaken(S5, 100))
    answer = story.request(1, request_)
    assert isinstance(answer, FetchSnapshotResponse)
    assert answer.error is error
    if error is Error.NONE:
        assert answer.read == SnapshotRead(S5, 40, 30)
        assert (answer.size_bytes, answer.position) == (100, 40)


def test_fetching_a_snapshot_shows_that_a_voter_lives() -> None:
    story = leading_with_records()
    story.feed(1, SnapshotTaken(S5, 100))
    for step in range(20):
        story.tick(1, 500)
        piece = FetchSnapshotRequest(key(2), 1, S5, step, 1)
        story.feed(1, RequestReceived(step, piece))
    assert story.role(1) is Role.LEADER


# ---- who needs one


def test_a_snapshot_is_wanted_until_its_replica_has_caught_up() -> None:
    story = leading_with_records()
    core = story.cores[1]
    story.feed(1, SnapshotTaken(S5, 100))
    assert core.snapshots_wanted() == ()
    story.request(1, FetchSnapshotRequest(key(9), 1, S5, 0, 30))
    story.request(1, FetchSnapshotRequest(key(8), 1, SnapshotId(6, 1), 0, 30))
    assert core.snapshots_wanted() == (S5,)
    story.request(1, FetchRequest(key(9), 1, 5, 1, 0, 1 << 20))
    assert core.snapshots_wanted() == (S5,), "it fetches the log behind it"
    story.request(1, FetchRequest(key(9), 1, 9, 1, 0, 1 << 20))
    assert core.snapshots_wanted() == ()


def test_a_snapshot_is_wanted_no_more_by_a_replica_that_is_past_a_newer_one() -> None:
    """One that follows a busy log is always a record behind, and never at its end."""
    story = leading_with_records()
    core, s8 = story.cores[1], SnapshotId(8, 1)
    story.feed(1, SnapshotTaken(S5, 100))
    story.request(1, FetchSnapshotRequest(key(9), 1, S5, 0, 30))
    story.request(1, FetchRequest(key(9), 1, core.high_watermark - 1, 1, 0, 1 << 20))
    assert core.snapshots_wanted() == (S5,), "the next snapshot could overtake it"
    story.feed(1, SnapshotTaken(s8, 100))
    story.request(1, FetchRequest(key(9), 1, 7, 1, 0, 1 << 20))
    assert core.snapshots_wanted() == (S5,), "the log behind it is cut up to the newer one"
    story.request(1, FetchRequest(key(9), 1, 8, 1, 0, 1 << 20))
    assert core.high_watermark > 8
    assert core.snapshots_wanted() == ()


def test_a_snapshot_is_wanted_no_more_once_its_replica_is_gone_or_takes_another() -> None:
    story = leading_with_records()
    core, s8 = story.cores[1], SnapshotId(8, 1)
    story.feed(1, SnapshotTaken(S5, 100))
    story.feed(1, SnapshotTaken(s8, 100))
    story.request(1, FetchSnapshotRequest(key(9), 1, S5, 0, 30))
    story.request(1, FetchSnapshotRequest(key(8), 1, s8, 0, 30))
    assert core.snapshots_wanted() == (S5, s8)
    story.request(1, FetchSnapshotRequest(key(8), 1, S5, 0, 30))
    assert core.snapshots_wanted() == (S5,)
    story.feed(1, SnapshotsDeleted((S5,)))
    assert core.snapshots_wanted() == ()
    story.request(1, FetchSnapshotRequest(key(8), 1, s8, 0, 30))
    for _ in range(SETTINGS.download_forgotten_ms // 500):
        story.tick(1, 500)
        story.request(1, FetchSnapshotRequest(key(2), 1, S5, 0, 30))
        story.request(1, FetchRequest(key(2), 1, 9, 1, 0, 1 << 20))
    assert core.snapshots_wanted() == (s8,)
    story.tick(1, 1)
    assert core.snapshots_wanted() == ()


# ---- downloading

S50 = SnapshotId(50, 4)


class Downloading:
    """Node 2 has ten records, and node 1, its leader in epoch 5, sends it to a snapshot."""

    def __init__(self, committed: int = 7, snapshot: SnapshotId = S50) -> None:
        initial = InitialState(
            quorum=PersistedState(5, 1),
            log_end_offset=10,
            epochs=((2, 0),),
            committed_offset=committed,
        )
        self.story = Story(initial={2: initial})
        self.answer(FetchResponse(Error.NONE, 1, 5, snapshot=snapshot))

    def sent(self) -> FetchRequest | FetchSnapshotRequest | None:
        bodies = [e.body for e in self.story.mail if e.source == 2 and not e.answer]
        assert len(bodies) <= 1
        body = bodies[0] if bodies else None
        assert body is None or isinstance(body, FetchRequest | FetchSnapshotRequest)
        return body

    def answer(self, response: FetchResponse | FetchSnapshotResponse) -> list[object]:
        envelope = next(e for e in self.story.mail if e.source == 2)
        self.story.mail.remove(envelope)
        return list(self.story.feed(2, ResponseReceived(envelope.request_id, response)))

    def piece(
        self, position: int, count: int, snapshot: SnapshotId = S50, size: int = 10
    ) -> list[object]:
        return self.answer(
            FetchSnapshotResponse(
                Error.NONE, 1, 5, snapshot, size, position, payload=b"x", payload_bytes=count
            )
        )

    def written(self, end: int) -> list[object]:
        return list(self.story.feed(2, SnapshotChunkWritten(S50, end)))


def position(request: object) -> int | None:
    return request.position if isinstance(request, FetchSnapshotRequest) else None


def test_a_download_goes_on_where_it_stopped_and_replaces_the_log() -> None:
    down = Downloading()
    assert position(down.sent()) == 0
    (write,) = down.piece(0, 6)
    assert isinstance(write, WriteSnapshotChunk)
    assert down.sent() is None, "the next piece waits for this one"
    down.written(6)
    assert position(down.sent()) == 6
    down.story.drop(2)
    down.story.tick(2, 1000)
    down.story.tick(2, 20)
    assert position(down.sent()) == 6, "a lost answer does not start it anew"
    down.piece(6, 4)
    (install,) = down.written(10)
    assert install == InstallSnapshot(S50, 10, 1)
    assert down.sent() is None
    actions = down.story.feed(2, SnapshotInstalled(S50, 10, voter_set(1, 2, 3, 4)))
    assert AdvanceHighWatermark(50, 50) in actions
    core = down.story.cores[2]
    assert (core.log_end_offset, core.high_watermark) == (50, 50)
    assert [each.node_id for each in core.voters.keys] == [1, 2, 3, 4]
    fetch = down.sent()
    assert isinstance(fetch, FetchRequest)
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (50, 4)


@pytest.mark.parametrize(
    ("at", "count", "snapshot", "size"),
    [
        (0, 4, SnapshotId(60, 4), 10),
        (3, 4, S50, 10),
        (6, 3, S50, 11),
        (6, 5, S50, 10),
        (6, 0, S50, 10),
    ],
)
def test_a_piece_of_something_else_is_never_written(
    at: int, count: int, snapshot: SnapshotId, size: int
) -> None:
    down = Downloading()
    down.piece(0, 6)
    down.written(6)
    heard_ms = down.story.cores[2].leader_heard_ms
    down.story.tick(2, 1)
    actions = down.piece(at, count, snapshot, size)
    assert not any(isinstance(each, WriteSnapshotChunk) for each in actions)
    assert down.story.cores[2].leader_heard_ms == heard_ms, "no sign of a leader that works"
    down.story.tick(2, 100)
    assert isinstance(down.sent(), FetchRequest)


@pytest.mark.parametrize("snapshot", [SnapshotId(7, 2), SnapshotId(3, 2), SnapshotId(60, 6)])
def test_a_snapshot_that_would_undo_commits_or_comes_from_the_future_is_refused(
    snapshot: SnapshotId,
) -> None:
    down = Downloading(snapshot=snapshot)
    assert down.story.warnings(2)
    down.story.tick(2, 100)
    assert isinstance(down.sent(), FetchRequest)


@pytest.mark.parametrize("error", [Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE])
def test_a_snapshot_that_is_gone_starts_again_from_fetch(error: Error) -> None:
    down = Downloading()
    down.piece(0, 6)
    down.written(6)
    down.answer(FetchSnapshotResponse(error, 1, 5, S50))
    down.story.tick(2, 20)
    assert isinstance(down.sent(), FetchRequest)


def test_nobody_stands_or_fetches_while_the_log_is_being_replaced() -> None:
    down = Downloading()
    down.piece(0, 10)
    down.written(10)
    down.story.tick(2, 60_000)
    assert down.story.role(2) is Role.FOLLOWER
    down.story.feed(2, RequestReceived("v", VoteRequest(9, key(3), key(2), 8, 99, pre_vote=True)))
    down.story.tick(2, 60_000)
    assert down.story.role(2) is Role.UNATTACHED
    assert down.sent() is None
    down.story.feed(2, SnapshotInstalled(S50, 10, None))
    assert isinstance(down.sent(), FetchRequest)


def test_a_flush_of_the_old_log_says_nothing_about_the_new_one() -> None:
    down = Downloading()
    down.piece(0, 10)
    down.written(10)
    down.story.feed(2, SnapshotInstalled(S50, 10, None))
    down.story.feed(2, FlushCompleted(2, 60, 0))
    assert down.story.cores[2].apply_to == 50


def test_a_damaged_download_is_fetched_anew() -> None:
    down = Downloading()
    down.piece(0, 10)
    down.written(10)
    assert not any(
        isinstance(each, SendRequest) for each in down.story.feed(2, SnapshotDamaged(S50))
    )
    actions = down.story.tick(2, SETTINGS.pre_vote_retry_ms)
    assert any(isinstance(each, SendRequest) for each in actions)
    assert isinstance(down.sent(), FetchRequest)


def test_damage_of_what_is_not_downloaded_changes_nothing() -> None:
    down = Downloading()
    down.piece(0, 6)
    assert down.story.feed(2, SnapshotDamaged(SnapshotId(60, 4))) == []
    assert down.story.cores[2].replica.download is not None
    assert down.story.feed(1, SnapshotDamaged(S50)) == []


def test_the_epoch_before_the_log_start_is_that_of_the_snapshot_that_ends_there() -> None:
    snapshots = tuple(
        StoredSnapshot(SnapshotId(end, epoch), 9) for end, epoch in ((2, 1), (7, 2), (9, 3))
    )
    initial = InitialState(
        PersistedState(5),
        log_start_offset=7,
        log_end_offset=12,
        epochs=((2, 7), (3, 8), (4, 10)),
        snapshots=snapshots,
    )
    log = Story(initial={1: initial}).cores[1].replica.log
    assert [log.epochs.epoch_of(offset) for offset in (6, 7, 8, 10)] == [2, 2, 3, 4]
