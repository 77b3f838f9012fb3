"""A running leader whose disk has lost what was durable: it stops, and the quorum goes on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.log.log_limits import LogLimits
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.admin import QuorumAdmin
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.quorum.following import collect, data
from tests.rlmm.quorum.local_network import METADATA, NODES, Network, Replica, leader_of, voters_of

FROM_DISK = LogLimits(recent_bytes_max=0, segment_bytes_max=400, retain_bytes_max=0)
PARTITION = METADATA / PARTITION_DIRECTORY


@asynccontextmanager
async def quorum() -> AsyncIterator[list[Replica]]:
    """Of three voters the last was never started, and an operator said to begin without it."""
    network = Network()
    replicas = [Replica(network, node_id, voters_of(*NODES)) for node_id in NODES]
    for replica in replicas[:2]:
        await _start(replica)
    yield replicas
    for replica in replicas:
        if replica.running:
            await replica.stop()


def with_quorum(story: Callable[[list[Replica]], Awaitable[None]]) -> None:
    """On a clock that a busy machine does not hold up: no leader loses its office by that."""

    async def main() -> None:
        async with quorum() as replicas:
            await story(replicas)

    run_virtually(main)


async def _start(replica: Replica) -> None:
    """For the first time; it need not wait for all three."""
    await replica.start(limits=FROM_DISK)
    await QuorumAdmin(replica.log.driver).accept_cut(deadline_s=10)


async def _stopped(replica: Replica) -> str:
    async with asyncio.timeout(10):
        while not replica.failures:
            await asyncio.sleep(0.005)
    return replica.failures[0]


async def _the_others_go_on(leader: Replica, replicas: list[Replica]) -> None:
    others = [replica for replica in replicas if replica is not leader]
    await leader_of(others)
    offset = await replicas[2].log.propose(data(b"after"), deadline_s=10)
    for replica in others:
        async with asyncio.timeout(10):
            async for group in replica.log.follow(offset):
                assert group.records[0].value == b"after"
                break
        assert replica.failures == []


def _turn_a_bit(leader: Replica, path: Path, position: int) -> None:
    leader.disk.damage(path, position, bit=6)


@pytest.mark.parametrize("position", [1, 14], ids=["offset", "epoch"])
def test_a_bit_outside_a_checksum_stops_the_leader_when_a_follower_needs_it(position: int) -> None:
    async def story(replicas: list[Replica]) -> None:
        leader = await leader_of(replicas)
        for each in range(20):
            await leader.log.propose(data(b"%d" % each), deadline_s=10)
        first = min(name for name in leader.disk.list_names(PARTITION) if name.endswith(".log"))
        _turn_a_bit(leader, PARTITION / first, position)
        await _start(replicas[2])
        assert REPLACE_REPLICA in await _stopped(leader)
        await _the_others_go_on(leader, replicas)

    with_quorum(story)


def test_a_sector_that_cannot_be_read_stops_the_leader_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(replicas: list[Replica]) -> None:
        leader = await leader_of(replicas)
        for each in range(20):
            await leader.log.propose(data(b"%d" % each), deadline_s=10)

        def bad_sector(*_: object) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(leader.disk, "read", bad_sector)
        await _start(replicas[2])
        assert REPLACE_REPLICA in await _stopped(leader)
        await _the_others_go_on(leader, replicas)

    with_quorum(story)


@pytest.mark.parametrize("position", [1, 80], ids=["offset", "record"])
def test_a_damaged_snapshot_stops_the_leader_before_a_byte_of_it_is_sent(position: int) -> None:
    async def story(replicas: list[Replica]) -> None:
        leader = await leader_of(replicas)
        follower = next(replica for replica in replicas[:2] if replica is not leader)
        for each in range(20):
            await leader.log.propose(data(b"%d" % each), deadline_s=10)
        end = (await collect(follower, 15))[-1].offset
        snapshot = SnapshotId(end, leader.log.driver.core.epoch_of(end - 1))
        for replica in (leader, follower):
            replica.log.allow_truncation_to(end)
            sink = await replica.log.begin_snapshot(snapshot, last_contained_timestamp_ms=5)
            await sink.add(data(b"row"))
            await sink.finish()
            assert replica.log.describe().log_start_offset > 0
        name = f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"
        _turn_a_bit(leader, PARTITION / name, position)
        await _start(replicas[2])
        assert REPLACE_REPLICA in await _stopped(leader)
        await _the_others_go_on(leader, replicas)

    with_quorum(story)
