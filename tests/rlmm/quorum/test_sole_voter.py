"""The sole voter's log keeps the log port's promises, over a disk that forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RetryLater,
)
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.disk import AppendFile, Disk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Voter
from rlmm.log.recovery import PARTITION_DIRECTORY, load_recovery_point
from rlmm.metadata_log import CommittedGroup, CommittedRecord, Proposal, SnapshotId
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.network_ports import NoPeers
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.events import Event, LogStartAdvanced
from rlmm.raft.messages import ReplicaKey
from tests.rlmm.log.crash_disk import CrashDisk, Survivors

METADATA = Path("/data/metadata")
DIRECTORY_ID = Uuid(b"directory-one...")
VOTER = Voter(1, DIRECTORY_ID)
ROLLING = LogLimits(segment_bytes_max=400, retain_bytes_max=0, recent_bytes_max=0)
FIRST = 3  # leader change, KRaft version, voters


class Clock:
    """Time that passes only when a test lets it."""

    def __init__(self) -> None:
        self.now = 1_000
        self._sleepers: list[asyncio.Event] = []

    def now_ms(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._sleepers.append(event)
        await event.wait()

    def let_pass(self) -> None:
        for event in self._sleepers:
            event.set()
        self._sleepers.clear()


async def open_log(
    disk: Disk,
    *,
    clock: Clock | None = None,
    limits: LogLimits | None = None,
    view_flushed_end: int = 0,
    failures: list[str] | None = None,
    voters: tuple[Voter, ...] = (VOTER,),
) -> QuorumLog:
    clock = clock or Clock()
    config = QuorumConfig("cluster", ReplicaKey(1, str(DIRECTORY_ID)), voter_set(voters))
    return await QuorumLog.open(
        Place(METADATA, disk),
        config,
        NoPeers(),
        view_flushed_end=view_flushed_end,
        ambient=Ambient(clock.now_ms, asyncio.get_running_loop().time, clock.sleep, lambda: 0.5),
        on_failure=(failures if failures is not None else []).append,
        limits=limits,
    )


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
async def log(disk: CrashDisk) -> AsyncIterator[QuorumLog]:
    log = await open_log(disk)
    yield log
    await log.close()


def data(*values: bytes) -> tuple[Proposal, ...]:
    return tuple(Proposal(None, value) for value in values)


async def collect(log: QuorumLog, start: int, end: int) -> list[CommittedRecord]:
    """What `follow` gives from `start` until it says it has given everything below `end`."""
    found: list[CommittedRecord] = []
    async for group in log.follow(start):
        found += group.records
        if group.end_offset >= end:
            return found
    raise AssertionError("follow ended by itself")


async def test_an_epoch_begins_with_the_leader_change_and_more_epochs_follow(
    disk: CrashDisk,
) -> None:
    for epoch in (1, 3, 5):
        log = await open_log(disk)
        assert log.describe().leader_epoch == epoch
        await log.propose(data(b"x"), deadline_s=5)
        await log.close()
    log = await open_log(disk)
    assert [record.epoch for record in await collect(log, 0, 9)] == [1, 3, 5]
    assert disk.read(METADATA / PARTITION_DIRECTORY / "leader-epoch-checkpoint") == (
        b"0\n4\n1 0\n3 4\n5 6\n7 8\n"
    )
    await log.close()


async def test_a_proposal_returns_the_first_offset_and_survives_a_power_cut(
    disk: CrashDisk,
) -> None:
    log = await open_log(disk)
    assert await log.propose(data(b"a", b"b"), deadline_s=5) == FIRST
    assert await log.propose((Proposal(1000, b"c"),), deadline_s=5) == FIRST + 2
    disk.power_cut(Survivors.NONE, Survivors.NONE)
    again = await open_log(disk)
    records = await again.read(0, limit=10)
    assert [(record.offset, record.control_type, record.value) for record in records] == [
        (FIRST, None, b"a"),
        (FIRST + 1, None, b"b"),
        (FIRST + 2, 1000, b"c"),
    ]
    await again.close()
    await log.close()


async def test_records_carry_epoch_and_the_leaders_time(disk: CrashDisk) -> None:
    clock = Clock()
    log = await open_log(disk, clock=clock)
    clock.now = 5_000
    await log.propose(data(b"a"), deadline_s=5)
    assert await log.read(0, limit=1) == (CommittedRecord(FIRST, 1, 5_000, None, b"a"),)
    await log.close()


async def test_many_proposals_at_once_each_get_their_own_offset(log: QuorumLog) -> None:
    offsets = await asyncio.gather(
        *(log.propose(data(b"%d" % index), deadline_s=5) for index in range(200))
    )
    assert offsets == list(range(FIRST, FIRST + 200))
    records = await collect(log, FIRST, FIRST + 200)
    assert [record.value for record in records] == [b"%d" % index for index in range(200)]


async def test_follow_waits_at_the_high_watermark_and_wakes(log: QuorumLog) -> None:
    follower = asyncio.create_task(collect(log, FIRST, FIRST + 2))
    await log.propose(data(b"a"), deadline_s=5)
    assert not follower.done()
    await log.propose(data(b"b"), deadline_s=5)
    assert [record.value for record in await follower] == [b"a", b"b"]


@pytest.mark.parametrize("recent_bytes_max", [0, 1 << 20])
async def test_follow_reads_the_same_from_disk_and_from_memory(
    disk: CrashDisk, recent_bytes_max: int
) -> None:
    limits = LogLimits(segment_bytes_max=700, recent_bytes_max=recent_bytes_max, read_bytes_max=300)
    log = await open_log(disk, limits=limits)
    for index in range(40):
        await log.propose(data(bytes([index]) * 50, b"second"), deadline_s=5)
    for start in (0, FIRST, FIRST + 1, FIRST + 40, FIRST + 79):
        records = await collect(log, start, FIRST + 80)
        assert [record.offset for record in records] == list(range(max(start, FIRST), FIRST + 80))
    await log.close()


async def test_follow_says_where_the_logs_own_records_end(log: QuorumLog) -> None:
    async for group in log.follow(0):
        assert group == CommittedGroup((), FIRST, 1)
        break


async def test_follow_ends_when_the_log_is_closed(disk: CrashDisk) -> None:
    log = await open_log(disk)
    follower = asyncio.ensure_future(anext(log.follow(FIRST), None))
    await asyncio.sleep(0)
    await log.close()
    await log.close()
    assert await follower is None
    with pytest.raises(RetryLater, match="shutting down"):
        await log.propose(data(b"x"), deadline_s=5)
    with pytest.raises(RetryLater):
        await log.barrier(deadline_s=5)


async def test_close_still_answers_what_was_queued(disk: CrashDisk) -> None:
    log = await open_log(disk)
    queued = [asyncio.create_task(log.propose(data(b"x"), deadline_s=5)) for _ in range(3)]
    await asyncio.sleep(0)
    await log.close()
    assert [await one for one in queued] == [FIRST, FIRST + 1, FIRST + 2]


async def test_the_barrier_is_above_every_completed_write(log: QuorumLog) -> None:
    offset = await log.propose(data(b"x"), deadline_s=5)
    assert await log.barrier(deadline_s=5) > offset


async def test_a_passed_deadline_leaves_the_outcome_unknown_and_the_record_in_the_log(
    log: QuorumLog,
) -> None:
    with pytest.raises(OutcomeUnknown, match="read the row by its id"):
        await log.propose(data(b"late"), deadline_s=0)
    after = await log.propose(data(b"after"), deadline_s=5)
    assert after == FIRST + 1
    assert [record.value for record in await log.read(FIRST, limit=9)] == [b"late", b"after"]


async def test_an_empty_or_too_large_proposal_is_refused(log: QuorumLog) -> None:
    with pytest.raises(InvalidRequest):
        await log.propose((), deadline_s=5)
    with pytest.raises(InvalidRequest, match="at most"):
        await log.propose(data(bytes(2 << 20)), deadline_s=5)


async def test_a_lost_quorum_state_is_a_hard_error(disk: CrashDisk) -> None:
    await (await open_log(disk)).close()
    disk.remove(METADATA / PARTITION_DIRECTORY / "quorum-state")
    with pytest.raises(CorruptData, match=r"quorum state is missing.* where other voters"):
        await open_log(disk)


async def test_a_view_ahead_of_the_log_is_an_error(disk: CrashDisk) -> None:
    await (await open_log(disk)).close()
    with pytest.raises(CorruptData, match="was durable here"):
        await open_log(disk, view_flushed_end=99)


async def test_the_cut_of_a_damaged_tail_is_logged_and_the_node_goes_on(
    disk: CrashDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = await open_log(disk)
    await log.propose(data(b"x"), deadline_s=5)
    disk.open_append(METADATA / PARTITION_DIRECTORY / f"{0:020d}.log").append(b"torn")
    disk.process_death()
    again = await open_log(disk)
    assert "was cut at offset 4, 4 bytes removed" in caplog.text
    assert await again.propose(data(b"y"), deadline_s=5) == FIRST + 2
    await again.close()
    await log.close()


async def test_the_recovery_point_follows_after_its_interval(disk: CrashDisk) -> None:
    clock = Clock()
    log = await open_log(disk, clock=clock)
    await log.propose(data(b"x"), deadline_s=5)
    assert load_recovery_point(disk, METADATA) == FIRST  # behind the voter set
    while load_recovery_point(disk, METADATA) == FIRST:
        clock.let_pass()
        await asyncio.sleep(0)
    assert load_recovery_point(disk, METADATA) == FIRST + 1
    await log.propose(data(b"y"), deadline_s=5)
    await log.close()
    assert load_recovery_point(disk, METADATA) == FIRST + 2


class FailingDisk(CrashDisk):
    """Fails every sync of files with this suffix from the moment that it is told to."""

    failing = False
    suffix = ""

    def open_append(self, path: Path) -> AppendFile:
        handle = super().open_append(path)
        sync = handle.sync

        def failing() -> None:
            if self.failing and path.name.endswith(self.suffix):
                raise OSError(5, "Input/output error")
            sync()

        handle.sync = failing  # type: ignore[method-assign]  # a fault
        return handle


async def test_a_failed_sync_stops_the_log_for_good() -> None:
    disk, failures = FailingDisk(), list[str]()
    log = await open_log(disk, failures=failures)
    follower = asyncio.ensure_future(anext(log.follow(FIRST)))
    disk.failing = True
    with pytest.raises(OutcomeUnknown, match="Input/output error"):
        await log.propose(data(b"unknown"), deadline_s=5)
    disk.failing = False
    with pytest.raises(RetryLater, match="restart the node"):
        await log.propose(data(b"refused"), deadline_s=5)
    with pytest.raises(RetryLater, match="restart the node"):
        await follower
    assert len(failures) == 1
    assert log.describe().leader_id == -1
    assert log.describe().high_watermark == FIRST
    await log.close()


async def test_a_disk_that_fails_at_the_first_batch_fails_the_start() -> None:
    disk = FailingDisk()
    await (await open_log(disk)).close()
    disk.failing = True
    with pytest.raises(RetryLater, match="Input/output error"):
        await open_log(disk)


async def test_a_snapshot_cuts_the_log_only_as_far_as_the_view_is_flushed(
    disk: CrashDisk,
) -> None:
    log = await open_log(disk, limits=ROLLING)
    for _ in range(20):
        await log.propose(data(bytes(100)), deadline_s=5)
    assert log.latest_snapshot() is None
    snapshot = SnapshotId(20, 1)
    sink = await log.begin_snapshot(snapshot, last_contained_timestamp_ms=9)
    await sink.add([Proposal(1100, b"row"), Proposal(None, b"segment")])
    log.allow_truncation_to(10)
    await sink.finish()
    assert log.latest_snapshot() == snapshot
    assert list(log.read_snapshot(snapshot)) == [Proposal(1100, b"row"), Proposal(None, b"segment")]
    assert 5 <= log.describe().log_start_offset <= 10
    with pytest.raises(NotFound):
        await log.read(0, limit=1)
    with pytest.raises(NotFound):
        await anext(log.follow(0))
    log.allow_truncation_to(FIRST)
    later = await log.begin_snapshot(SnapshotId(23, 1), last_contained_timestamp_ms=9)
    log.allow_truncation_to(23)
    await later.finish()
    assert 18 <= log.describe().log_start_offset <= 23
    await log.close()
    again = await open_log(disk, limits=ROLLING, view_flushed_end=23)
    assert again.describe().log_start_offset == log.describe().log_start_offset
    await again.close()


async def test_the_core_hears_of_a_cut_as_it_was_made(
    disk: CrashDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it, in the writer's thread, a snapshot may replace the log before that is heard of:
    the core would take the new start for one that no snapshot covers, and stop the node.
    """
    log = await open_log(disk, limits=ROLLING)
    for _ in range(20):
        await log.propose(data(bytes(100)), deadline_s=5)
    heard: list[int] = []
    feed, run_in = log.driver.feed, log._in

    def listen(event: Event) -> None:
        if isinstance(event, LogStartAdvanced):
            heard.append(event.log_start_offset)
        feed(event)

    async def run_in_and_be_overtaken(executor: Any, call: Any, *arguments: Any) -> Any:
        result = await run_in(executor, call, *arguments)
        if executor is log._writer:
            monkeypatch.setattr(LogDirectory, "log_start_offset", 1_000)
        return result

    monkeypatch.setattr(log.driver, "feed", listen)
    monkeypatch.setattr(log, "_in", run_in_and_be_overtaken)
    sink = await log.begin_snapshot(SnapshotId(20, 1), last_contained_timestamp_ms=9)
    log.allow_truncation_to(20)
    await sink.finish()
    monkeypatch.undo()
    assert heard == [log.describe().log_start_offset]
    await log.close()


async def test_the_core_hears_of_a_cut_although_old_snapshots_stay(
    disk: CrashDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(disk, limits=ROLLING)
    for _ in range(20):
        await log.propose(data(bytes(100)), deadline_s=5)

    def fails(_: LogDirectory, *, keep: int, held: tuple[SnapshotId, ...]) -> None:
        raise OSError(5, f"Input/output error, and {keep} stay, and {held}")

    monkeypatch.setattr(LogDirectory, "remove_old_snapshots", fails)
    sink = await log.begin_snapshot(SnapshotId(20, 1), last_contained_timestamp_ms=9)
    log.allow_truncation_to(20)
    await sink.finish()
    start = log.describe().log_start_offset
    assert start > 0
    assert log.driver.core.replica.log.start_offset == start
    assert log.latest_snapshot() == SnapshotId(20, 1)
    ((name, text),) = log.describe().troubles
    assert name == "old_snapshots"
    assert "Input/output error" in text
    monkeypatch.undo()
    end = log.driver.high_watermark
    await (await log.begin_snapshot(SnapshotId(end, 1), last_contained_timestamp_ms=9)).finish()
    assert log.describe().troubles == ()
    await log.close()


async def test_a_snapshot_that_could_not_be_finished_leaves_nothing(
    disk: CrashDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk each attempt left its file, and the disk never had room again."""
    log = await open_log(disk)

    def full(old: Path, new: Path) -> None:
        raise OSError(28, "No space left on device")

    sink = await log.begin_snapshot(SnapshotId(FIRST, 1), last_contained_timestamp_ms=9)
    monkeypatch.setattr(disk, "rename", full)
    monkeypatch.setattr(log._directory, "store_recovery_point", lambda: FIRST)
    with pytest.raises(RetryLater, match="No space left"):
        await sink.finish()
    monkeypatch.undo()
    names = disk.list_names(METADATA / PARTITION_DIRECTORY)
    assert [name for name in names if ".part" in name] == []
    ((name, text),) = log.describe().troubles
    assert (name, "No space left" in text) == ("snapshot", True)
    await (await log.begin_snapshot(SnapshotId(FIRST, 1), last_contained_timestamp_ms=9)).finish()
    assert log.describe().troubles == ()
    await log.close()


async def test_only_the_newest_snapshots_are_kept(disk: CrashDisk) -> None:
    log = await open_log(disk)
    for end in range(FIRST, FIRST + 3):
        await (await log.begin_snapshot(SnapshotId(end, 1), last_contained_timestamp_ms=9)).finish()
        await log.propose(data(b"x"), deadline_s=5)
    names = disk.list_names(METADATA / PARTITION_DIRECTORY)
    assert [name for name in names if name.endswith(".checkpoint")] == [
        f"{4:020d}-{1:010d}.checkpoint",
        f"{5:020d}-{1:010d}.checkpoint",
    ]
    await log.close()


async def test_a_snapshot_lies_below_the_high_watermark_and_is_new(log: QuorumLog) -> None:
    for end in (0, -1, FIRST + 1):
        with pytest.raises(InvalidRequest, match=r"high watermark|log start"):
            await log.begin_snapshot(SnapshotId(end, 1), last_contained_timestamp_ms=9)
    sink = await log.begin_snapshot(SnapshotId(FIRST, 1), last_contained_timestamp_ms=9)
    await sink.abandon()
    assert log.latest_snapshot() is None
    sink = await log.begin_snapshot(SnapshotId(FIRST, 1), last_contained_timestamp_ms=9)
    await sink.finish()
    with pytest.raises(Conflict, match="exists"):
        await log.begin_snapshot(SnapshotId(FIRST, 1), last_contained_timestamp_ms=9)


async def test_a_snapshot_on_a_failing_disk_is_retried_later() -> None:
    disk = FailingDisk()
    disk.suffix = ".part"
    log = await open_log(disk)
    sink = await log.begin_snapshot(SnapshotId(FIRST, 1), last_contained_timestamp_ms=9)
    disk.failing = True
    with pytest.raises(RetryLater, match="snapshot could not be written"):
        await sink.finish()
    disk.failing = False
    assert await log.propose(data(b"the log itself goes on"), deadline_s=5) == FIRST
    await log.close()


async def test_it_describes_itself(disk: CrashDisk) -> None:
    log = await open_log(disk)
    await log.propose(data(b"x"), deadline_s=5)
    described = log.describe()
    assert (described.cluster_id, described.node_id, described.leader_id) == ("cluster", 1, 1)
    assert (described.log_start_offset, described.high_watermark) == (0, FIRST + 1)
    assert described.log_end_offset == FIRST + 1
    (voter,) = described.voters
    assert (voter.node_id, voter.directory_id) == (1, str(DIRECTORY_ID))
    await log.close()
    assert log.describe().leader_id == -1
