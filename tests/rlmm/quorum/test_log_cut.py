"""What a cut leaves for replicas that download a snapshot, and what it takes all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from rlmm.log.log_limits import LogLimits
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import list_snapshots
from rlmm.metadata_log import Proposal, SnapshotId
from rlmm.quorum.log_cut import held
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import (
    METADATA,
    NODES,
    QUICK,
    Network,
    Replica,
    leader_of,
    quorum,
    voters_of,
)

LIMITS = LogLimits(
    segment_bytes_max=400,
    retain_bytes_max=0,
    recent_bytes_max=0,
    snapshots_kept=1,
    downloads_held_max=1,
)
NEXT_SNAPSHOT_S = 0.2
PIECE_S = 0.01
"""A hundred pieces and more are a snapshot."""


def ids(*ends: int) -> tuple[SnapshotId, ...]:
    return tuple(SnapshotId(end, 1) for end in ends)


@pytest.mark.parametrize(
    ("wanted", "stay"),
    [
        ((), ()),
        ((20,), (20,)),
        ((40,), (40,)),
        ((20, 40), (20, 40)),
        ((20, 30), (20,)),  # the oldest, which is the nearest to its download's end
        ((20, 30, 40), (20, 40)),
        ((10, 20), (20,)),  # the log behind the first has grown too large
        ((10, 40), (40,)),
        ((15, 20), (20,)),  # the first is gone
    ],
)
def test_what_somebody_downloads_stays_within_bounds(
    wanted: tuple[int, ...], stay: tuple[int, ...]
) -> None:
    limits = replace(LIMITS, download_log_bytes_max=300)
    found = held(
        ids(10, 20, 30, 40),
        ids(*wanted),
        log_bytes_from=lambda offset: (50 - offset) * 10,
        limits=limits,
    )
    assert found == ids(*stay)


async def take_snapshot(replica: Replica) -> None:
    """Of some more records, and the log cut up to its end."""
    for each in range(5):
        end = await replica.log.propose(data(b"%040d" % each), deadline_s=10) + 1
    snapshot = SnapshotId(end, replica.log.driver.core.epoch_of(end - 1))
    replica.log.allow_truncation_to(end)
    sink = await replica.log.begin_snapshot(snapshot, last_contained_timestamp_ms=1)
    await sink.add([Proposal(None, b"a row")] * 1_000)
    await sink.finish()


def snapshots_of(replica: Replica) -> tuple[SnapshotId, ...]:
    found = list_snapshots(replica.disk, METADATA / PARTITION_DIRECTORY)
    return tuple(snapshot for snapshot in found if snapshot.end_offset > 0)


@asynccontextmanager
async def joining(limits: LogLimits) -> AsyncIterator[tuple[Replica, Replica, SnapshotId]]:
    """The leader, a new replica, and the snapshot that it is told to download."""
    settings = replace(QUICK, fetch_snapshot_bytes_max=100)
    network = Network(settings=settings, delay_s=lambda: PIECE_S / 2)
    async with quorum(network) as replicas:
        for replica in replicas:
            await replica.stop()
            await replica.start(limits=limits)
        leader = await leader_of(replicas)
        await take_snapshot(leader)
        (snapshot,) = snapshots_of(leader)
        new = Replica(network, 4, voters_of(*NODES), bootstrap=NODES)
        replicas.append(new)
        await new.start(limits=limits)
        yield leader, new, snapshot


def test_a_replica_joins_although_snapshots_come_faster_than_it_downloads_one() -> None:
    """It began anew with each, for ever; and without the log behind its own it would have, too."""

    async def main() -> None:
        async with joining(LIMITS) as (leader, new, snapshot):
            taken = 0
            async with asyncio.timeout(5):
                while new.log.driver.apply_to < leader.log.driver.apply_to - 5:
                    await asyncio.sleep(NEXT_SNAPSHOT_S)
                    await take_snapshot(leader)
                    taken += 1
                    assert len(snapshots_of(leader)) <= 2
            assert taken >= 5
            assert snapshots_of(new) == (snapshot,)
            # Once it has caught up nothing is kept for it.
            await asyncio.sleep(NEXT_SNAPSHOT_S)
            await take_snapshot(leader)
            assert len(snapshots_of(leader)) == 1
            assert leader.log.describe().log_start_offset > snapshot.end_offset
            assert leader.log.describe().troubles == ()

    run_virtually(main)


def test_a_download_that_would_keep_too_much_of_the_log_is_interrupted_and_told() -> None:
    async def main() -> None:
        limits = replace(LIMITS, download_log_bytes_max=1_000)
        async with joining(limits) as (leader, new, snapshot):
            async with asyncio.timeout(5):
                while snapshot in snapshots_of(leader):
                    await asyncio.sleep(NEXT_SNAPSHOT_S)
                    await take_snapshot(leader)
            assert leader.log.describe().log_start_offset > snapshot.end_offset
            ((name, text),) = leader.log.describe().troubles
            assert name == "downloads"
            assert f"up to offset {snapshot.end_offset}" in text
            assert new.log.latest_snapshot() is None

    run_virtually(main)
