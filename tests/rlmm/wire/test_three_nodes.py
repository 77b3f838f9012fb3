"""Three nodes agree over real sockets: what holds without a wire holds with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rlmm.log.log_limits import LogLimits
from rlmm.metadata_log import Proposal, SnapshotId
from tests.rlmm.log.crash_disk import Survivors
from tests.rlmm.quorum.following import all_propose_and_read_the_same, collect, data
from tests.rlmm.wire.wire_network import WireReplica, leader_of, replicas

SMALL = LogLimits(segment_bytes_max=400, retain_bytes_max=0, recent_bytes_max=0)


@pytest.fixture
async def nodes() -> AsyncIterator[list[WireReplica]]:
    async with replicas() as running:
        yield running


async def test_every_node_proposes_and_every_node_reads_the_same(nodes: list[WireReplica]) -> None:
    await leader_of(nodes)
    await all_propose_and_read_the_same(nodes)


async def test_a_new_leader_has_everything_that_was_acknowledged(
    nodes: list[WireReplica],
) -> None:
    acknowledged = set()
    for round_ in range(3):
        leader = await leader_of(nodes)
        for each in range(10):
            value = b"%d-%d" % (round_, each)
            await leader.log.propose(data(value), deadline_s=10)
            acknowledged.add(value)
        await leader.stop()
        leader.power_cut(Survivors.NONE)
        await leader_of(nodes)
        await leader.start()
    leader = await leader_of(nodes)
    end = await leader.log.propose(data(b"last"), deadline_s=10) + 1
    for node in nodes:
        values = [record.value for record in await collect(node, end)]
        assert acknowledged <= set(values)
        assert len(values) == len(set(values)) == 31


async def snapshot(node: WireReplica, end: int) -> None:
    """Of everything below `end`, and the log cut up to it."""
    await collect(node, end)
    epoch = node.log.driver.core.epoch_of(end - 1)
    node.log.allow_truncation_to(end)
    sink = await node.log.begin_snapshot(SnapshotId(end, epoch), last_contained_timestamp_ms=1)
    await sink.add([Proposal(None, b"row")] * 2_000)
    await sink.finish()
    assert node.log.describe().log_start_offset > 10


async def test_a_node_that_was_away_too_long_starts_from_the_leaders_snapshot(
    nodes: list[WireReplica],
) -> None:
    leader = await leader_of(nodes)
    behind = next(node for node in nodes if node is not leader)
    for node in nodes:
        await node.stop()
    for node in nodes:
        if node is not behind:
            await node.start(limits=SMALL)
    leader = await leader_of(nodes)
    for each in range(40):
        end = await leader.log.propose(data(b"%040d" % each), deadline_s=10) + 1
    for node in nodes:
        if node is not behind:  # each of them may lead by then
            await snapshot(node, end)
    end = await leader.log.propose(data(b"behind the snapshot"), deadline_s=10) + 1
    log = await behind.start(limits=SMALL)
    async with asyncio.timeout(10):
        while log.driver.apply_to < end:
            await asyncio.sleep(0.01)
    fetched = log.latest_snapshot()
    assert fetched is not None
    assert [row.value for row in log.read_snapshot(fetched)] == [b"row"] * 2_000
    records = await log.read(fetched.end_offset, limit=9)
    assert [record.value for record in records] == [b"behind the snapshot"]
