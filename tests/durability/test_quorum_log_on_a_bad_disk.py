"""The quorum's log with one voter, as a node runs it: power cuts and faults at each disk operation.

One life is lived; before each of its operations on the disk, what the medium would keep is set
aside together with what callers had been told until then. Each such state is then opened.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, OutcomeUnknown, RetryLater
from rlmm.log.log_limits import LogLimits
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.metadata_log import Proposal, SnapshotId
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.network_ports import NoPeers
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.messages import ReplicaKey
from tests.durability.log_life import LOSSES, METADATA, BrokenPromiseError, Loss
from tests.durability.quorum_node import VOTERS
from tests.durability.test_log_on_a_bad_disk import torn
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.metadata_node import DIRECTORY_ID, NODE_ID, NOW_MS

LIMITS = LogLimits(segment_bytes_max=700, retain_bytes_max=0, recent_bytes_max=0)
ROWS = [Proposal(None, b"row")]
STEPS = 8


@dataclass
class Told:
    """What callers heard."""

    values: dict[int, bytes] = field(default_factory=dict)
    tried: set[bytes] = field(default_factory=set)
    epoch: int = 0
    snapshot: SnapshotId | None = None

    def copy(self) -> Told:
        return Told(dict(self.values), set(self.tried), self.epoch, self.snapshot)

    def promises(self) -> Hashable:
        """All but what was tried: later lives may find more of that, never less."""
        return tuple(self.values.items()), self.epoch, self.snapshot


async def never(seconds: float) -> None:
    """Nothing happens by itself: the life is the same each time."""
    await asyncio.Event().wait()


async def open_log(disk: CrashDisk, failures: list[str] | None = None) -> QuorumLog:
    return await QuorumLog.open(
        Place(METADATA, disk),
        QuorumConfig("cluster", ReplicaKey(NODE_ID, str(DIRECTORY_ID)), voter_set(VOTERS)),
        NoPeers(),
        view_flushed_end=0,
        ambient=Ambient(lambda: NOW_MS, asyncio.get_running_loop().time, never, lambda: 0.5),
        on_failure=(failures if failures is not None else []).append,
        limits=LIMITS,
    )


async def live(disk: CrashDisk, told: Told, *, life: int) -> None:
    """Propose, take a snapshot that cuts the log, propose more, close."""
    log = await open_log(disk)
    told.epoch = log.describe().leader_epoch
    try:
        for step in range(STEPS):
            value = b"%d-%d" % (life, step) * 20
            told.tried.add(value)
            offset = await log.propose((Proposal(None, value),), deadline_s=30)
            told.values[offset] = value
            if step == STEPS // 2:
                snapshot = SnapshotId(offset + 1, told.epoch)
                log.allow_truncation_to(offset + 1)
                sink = await log.begin_snapshot(snapshot, last_contained_timestamp_ms=5)
                await sink.add(ROWS)
                await sink.finish()
                told.snapshot = snapshot
    finally:
        await log.close()


async def check(disk: CrashDisk, told: Told) -> None:
    try:
        log = await open_log(disk)
    except CorruptData as error:
        raise BrokenPromiseError(f"the log does not open: {error}") from error
    try:
        described = log.describe()
        records = await log.read(described.log_start_offset, limit=1_000)
        found = {record.offset: record.value for record in records}
        for offset, value in told.values.items():
            if offset >= described.log_start_offset and found.get(offset) != value:
                raise BrokenPromiseError(f"offset {offset} was told and is {found.get(offset)!r}")
        if not set(found.values()) <= told.tried:
            raise BrokenPromiseError("there is a record that nobody proposed")
        if described.leader_epoch <= told.epoch:
            raise BrokenPromiseError(f"epoch {described.leader_epoch} is led again")
        newest = log.latest_snapshot()
        if described.log_start_offset > 0 and newest is None:
            raise BrokenPromiseError("the log is cut and has no snapshot")
        if told.snapshot and newest and newest.end_offset < told.snapshot.end_offset:
            raise BrokenPromiseError("the snapshot is gone")
        if newest is not None and list(log.read_snapshot(newest)) != ROWS:
            raise BrokenPromiseError("the snapshot is another")
    except CorruptData as error:
        raise BrokenPromiseError(f"it cannot be read: {error}") from error
    finally:
        await log.close()


class WatchedDisk(CrashDisk):
    """Calls `before_each` before every operation that changes something, from whatever thread."""

    before_each: Callable[[], None] | None = None

    def operate(self, *, grows: bool = False) -> None:
        if self.before_each is not None:
            self.before_each()
        super().operate(grows=grows)


async def lose_power_everywhere(
    losses: list[Loss], make: Callable[[], WatchedDisk] = WatchedDisk
) -> int:
    disk, told = make(), Told()
    states: list[tuple[CrashDisk, Told]] = []
    met: set[object] = set()
    cuts, lock = 0, threading.Lock()

    def set_aside() -> None:
        nonlocal cuts
        with lock:
            cuts += len(losses)
            left = disk.states_left(losses, met, told.promises())
            states.extend((state, told.copy()) for state in left)

    for life in range(2):
        disk.before_each = set_aside
        await live(disk, told, life=life)
        set_aside()
        disk.before_each = None
    for state, known in states:
        await check(state, known)
    return cuts


async def test_nothing_told_is_lost_whenever_the_power_goes() -> None:
    assert await lose_power_everywhere([*LOSSES, *torn(range(4))]) > 900


async def quorum_sync_sites() -> list[str]:
    """Those of the quorum's own code; `test_log_on_a_bad_disk` has the log's."""
    disk = WatchedDisk()
    for life in range(2):
        await live(disk, Told(), life=life)
    return sorted(
        site for site in disk.sync_sites if site.startswith(("disk_queue", "log_cut", "quorum_log"))
    )


NEEDLESS = {
    "disk_queue._run > quorum_state_file.store: names":
        "a sole voter tells nobody of its epoch before the epoch's checkpoint syncs the same names",
}  # fmt: skip


async def test_each_sync_left_out_is_caught() -> None:
    caught = {}
    for site in await quorum_sync_sites():

        def make(site: str = site) -> WatchedDisk:
            disk = WatchedDisk()
            disk.ignored_site = site
            return disk

        try:
            await lose_power_everywhere(LOSSES, make)
            caught[site] = False
        except BrokenPromiseError:
            caught[site] = True
    assert caught == {site: site not in NEEDLESS for site in caught}
    assert len(caught) > 4


class UnreadableDisk(CrashDisk):
    """Its log gives no bytes once `error` is set."""

    error: OSError | None = None

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        if self.error is not None and path.suffix == ".log":
            raise self.error
        return super().read(path, position, length)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
async def test_a_log_that_cannot_be_read_says_what_to_do(number: int) -> None:
    disk, told = UnreadableDisk(), Told()
    await live(disk, told, life=0)
    log = await open_log(disk)
    try:
        disk.error = OSError(number, os.strerror(number))
        with pytest.raises(RetryLater, match="Check the disk"):
            await log.read(log.describe().log_start_offset, limit=1_000)
    finally:
        disk.error = None
        await log.close()


@pytest.mark.parametrize("fault", ["fail_sync_at", "full_at"])
async def test_a_disk_that_fails_once_stops_the_log_and_loses_nothing_told(fault: str) -> None:
    at = cases = 0
    while True:
        disk, told = WatchedDisk(), Told()
        await live(disk, told, life=0)
        disk.process_death()
        setattr(disk, fault, at)
        with suppress(RetryLater, OutcomeUnknown):
            await live(disk, told, life=1)
        if disk.operations <= at:
            break
        read_only = disk.read_only
        disk.process_death()
        # The operator starts the node again: with the page cache as the fault left it.
        if not read_only:
            await check(disk, told)
        disk.power_cut(*torn(range(at, at + 1))[0])
        await check(disk, told)
        at, cases = at + 1, cases + 1
    assert cases > 30


async def test_after_a_failed_sync_nothing_is_acknowledged_any_more() -> None:
    disk, failures = WatchedDisk(), list[str]()
    log = await open_log(disk, failures)
    await log.propose((Proposal(None, b"before"),), deadline_s=5)
    watermark = log.describe().high_watermark
    disk.fail_sync_at = disk.operations
    with pytest.raises(OutcomeUnknown, match="Input/output error"):
        await log.propose((Proposal(None, b"unknown"),), deadline_s=5)
    for _ in range(3):
        with pytest.raises(RetryLater, match="restart the node"):
            await log.propose((Proposal(None, b"refused"),), deadline_s=5)
    assert disk.failed_syncs == len(failures) == 1
    assert "Check the disk" in failures[0]
    assert log.describe().high_watermark == watermark
    await log.close()


async def test_while_a_sync_takes_its_time_nothing_is_acknowledged_or_visible() -> None:
    disk = WatchedDisk()
    log = await open_log(disk)
    watermark, may_go_on = log.describe().high_watermark, threading.Event()
    disk.before_sync = lambda: None if may_go_on.wait(30) else pytest.fail("nobody let it go on")
    with pytest.raises(OutcomeUnknown):
        await log.propose((Proposal(None, b"slow"),), deadline_s=0.05)
    assert log.describe().high_watermark == watermark
    assert await log.read(watermark, limit=10) == ()
    may_go_on.set()
    assert await log.propose((Proposal(None, b"next"),), deadline_s=30) == watermark + 1
    assert [record.value for record in await log.read(watermark, limit=10)] == [b"slow", b"next"]
    await log.close()


async def test_a_log_that_failed_is_closed_once_no_thread_of_it_writes_any_more() -> None:
    disk = WatchedDisk()
    log = await open_log(disk)
    slow, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        slow.set()
        assert may_go_on.wait(30), "nobody let it go on"

    disk.before_sync = wait
    storing = asyncio.ensure_future(log.store_recovery_point())
    await asyncio.to_thread(slow.wait, 30)
    log.driver.fail("a bug")
    storing.cancel()
    closing = asyncio.ensure_future(log.close())
    done, _ = await asyncio.wait([closing], timeout=0.2)
    assert not done, "another life may have begun meanwhile"
    may_go_on.set()
    await closing


async def test_no_flipped_bit_of_the_quorum_state_leads_an_epoch_again() -> None:
    whole, told = WatchedDisk(), Told()
    for life in range(2):
        await live(whole, told, life=life)
    path = METADATA / PARTITION_DIRECTORY / "quorum-state"
    refused = 0
    for position in range(whole.size(path)):
        for bit in range(8):
            disk = whole.copy()
            disk.damage(path, position, bit=bit)
            try:
                await check(disk, told)
            except BrokenPromiseError as error:
                refused += isinstance(error.__cause__, CorruptData)
                if not isinstance(error.__cause__, CorruptData):
                    raise
    assert refused == 8 * whole.size(path)
