"""A snapshot whose caller gives up while the log is cut."""

from __future__ import annotations

import asyncio
import threading

import pytest

import rlmm.quorum.quorum_log
from rlmm.log.log_directory import LogDirectory
from rlmm.log.log_limits import LogLimits
from rlmm.metadata_log import Proposal, SnapshotId
from rlmm.quorum.log_cut import LogCutDone, cut_log
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import Network, Replica, leader_of, voters_of

LIMITS = LogLimits(segment_bytes_max=400, retain_bytes_max=0, recent_bytes_max=0, snapshots_kept=1)


class SlowCut:
    """The first cut waits in the writer's thread until `go_on` is set, and may fail then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: OSError | None = None) -> None:
        self.failure = failure
        self.begun, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(rlmm.quorum.quorum_log, "cut_log", self._slowly)

    def _slowly(
        self,
        directory: LogDirectory,
        up_to: int,
        wanted: tuple[SnapshotId, ...],
        limits: LogLimits,
    ) -> LogCutDone:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(10)
            if self.failure is not None:
                raise self.failure
        return cut_log(directory, up_to, wanted, limits)


async def take_snapshot(leader: Replica) -> None:
    for each in range(20):
        end = await leader.log.propose(data(b"%040d" % each), deadline_s=10) + 1
    leader.log.allow_truncation_to(end)
    epoch = leader.log.driver.core.epoch_of(end - 1)
    sink = await leader.log.begin_snapshot(SnapshotId(end, epoch), last_contained_timestamp_ms=1)
    await sink.add([Proposal(None, b"a row")])
    await sink.finish()


async def caught_up(replica: Replica, leader: Replica) -> None:
    async with asyncio.timeout(10):
        while replica.log.driver.apply_to < leader.log.driver.apply_to:
            await asyncio.sleep(0.01)


@pytest.mark.timeout(60)
async def test_a_replica_that_was_away_catches_up_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's start moved all the same, and the leader has to know it: else it sends nothing of
    what is below, and no snapshot either.
    """
    network = Network()
    leader = Replica(network, 1, voters_of(1))
    await leader.start(limits=LIMITS)
    await leader_of([leader])
    away = Replica(network, 4, voters_of(1), bootstrap=(1,))
    await away.start(limits=LIMITS)
    await caught_up(away, leader)
    await away.stop()
    cut = SlowCut(monkeypatch)
    taking = asyncio.create_task(take_snapshot(leader))
    assert await asyncio.to_thread(cut.begun.wait, 10)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    cut.go_on.set()
    await away.start(limits=LIMITS)
    try:
        await caught_up(away, leader)
    finally:
        await away.stop()
        await leader.stop()
    assert (away.failures, leader.failures) == ([], [])


@pytest.mark.timeout(60)
async def test_the_end_of_the_node_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Replica(Network(), 1, voters_of(1))
    await leader.start(limits=LIMITS)
    await leader_of([leader])
    cut = SlowCut(monkeypatch)
    taking = asyncio.create_task(take_snapshot(leader))
    assert await asyncio.to_thread(cut.begun.wait, 10)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    stopping = asyncio.create_task(leader.stop())
    await asyncio.wait({stopping}, timeout=0.2)
    cut.go_on.set()
    await stopping
    await leader.start(limits=LIMITS)
    assert leader.log.describe().log_start_offset > 0
    await leader.stop()
    assert leader.failures == []


@pytest.mark.timeout(60)
async def test_its_failure_is_shown_though_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Replica(Network(), 1, voters_of(1))
    await leader.start(limits=LIMITS)
    await leader_of([leader])
    cut = SlowCut(monkeypatch, OSError(5, "Input/output error"))
    taking = asyncio.create_task(take_snapshot(leader))
    assert await asyncio.to_thread(cut.begun.wait, 10)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    cut.go_on.set()
    async with asyncio.timeout(10):
        while "Input/output error" not in str(leader.log.driver.troubles.standing()):
            await asyncio.sleep(0.01)
    await leader.stop()
