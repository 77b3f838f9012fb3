"""How often the disk's thread is woken: a lone commit waits for each time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import download_name
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.disk_queue import Append, Job
from rlmm.raft.actions import Flush, WriteSnapshotChunk
from rlmm.raft.messages import SnapshotId as CoreSnapshotId
from tests.rlmm.quorum.following import collect, data
from tests.rlmm.quorum.local_network import METADATA, Network, Replica, leader_of, voters_of


def watched(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> list[list[type]]:
    """The kinds of jobs in each pass of this replica's disk queue from now on."""
    passes: list[list[type]] = []
    jobs = replica.log.driver.jobs
    run = jobs._run

    def counted(given: Sequence[Job]) -> object:
        passes.append([type(job) for job in given])
        return run(given)

    monkeypatch.setattr(jobs, "_run", counted)
    return passes


async def test_a_lone_commit_is_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica(Network(), 1, voters_of(1))
    await replica.start()
    await leader_of([replica])
    passes = watched(replica, monkeypatch)
    for value in (b"one", b"another"):
        await collect(replica, await replica.log.propose(data(value), deadline_s=10) + 1)
    assert passes == [[Append, Flush]] * 2
    await replica.stop()


async def test_what_comes_during_a_pass_shares_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica(Network(), 1, voters_of(1))
    await replica.start()
    await leader_of([replica])
    passes = watched(replica, monkeypatch)
    first = asyncio.create_task(replica.log.propose(data(b"0"), deadline_s=10))
    while not passes:
        await asyncio.sleep(0)
    asking = [replica.log.propose(data(b"%d" % each), deadline_s=10) for each in range(1, 50)]
    assert await asyncio.gather(first, *asking)
    assert len(passes) < 10
    await replica.stop()


async def test_downloads_given_up_do_not_pile_up_and_none_is_mixed_with_a_snapshot_of_our_own() -> (
    None
):
    replica = Replica(Network(), 1, voters_of(1))
    await replica.start()
    await leader_of([replica])
    driver, directory = replica.log.driver, METADATA / PARTITION_DIRECTORY
    own = await replica.log.begin_snapshot(SnapshotId(3, 1), last_contained_timestamp_ms=5)
    for end_offset in (3, 5, 9):
        for position in (0, 3):
            chunk = WriteSnapshotChunk(CoreSnapshotId(end_offset, 1), position, b"abc", 3)
            driver.jobs.submit(chunk)
        driver.jobs.begin()
        await driver.jobs.settled()
    parts = [name for name in replica.disk.list_names(directory) if name.endswith(".part")]
    assert len(parts) == 2
    fetched = directory / download_name(SnapshotId(9, 1))
    assert replica.disk.read(fetched) == b"abcabc"
    await own.finish()
    assert replica.log.latest_snapshot() == SnapshotId(3, 1)
    await replica.stop()
