"""Three metadata managers over three replicas: one state, whichever node writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rlmm.log.limits import LogLimits
from rlmm.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.records import LogStart
from rlmm.view import View
from tests.rlmm.metadata_node import (
    NOW_MS,
    PARTITION,
    claim,
    copied,
    finished,
    incarnation,
    started,
)
from tests.rlmm.quorum.local_network import Network, Replica, leader_of, voters_of

NODES = (1, 2, 3)
SMALL = LogLimits(segment_bytes_max=2_000, retain_bytes_max=0, recent_bytes_max=0)


class Node:
    """A replica with its view and manager."""

    def __init__(self, home: Path, network: Network, node_id: int) -> None:
        self.replica = Replica(network, node_id, voters_of(*NODES))
        self._home = home
        self.view: View | None = None
        self.failures: list[str] = []

    @property
    def manager(self) -> RemoteLogMetadataManager:
        return self._manager

    async def start(self) -> None:
        self.view = View.open(self._home / f"view-{self.replica.node_id}")
        await self.replica.start(limits=SMALL)
        self._manager = await RemoteLogMetadataManager.start(
            self.replica.log,
            self.view,
            incarnation=incarnation(),
            now_ms=lambda: NOW_MS,
            limits=MetadataLimits(),
            on_failure=self.failures.append,
        )

    async def stop(self) -> None:
        await self._manager.close()
        await self.replica.stop()
        assert self.view is not None
        self.view.close()
        assert self.failures == []


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def nodes(tmp_path: Path, network: Network) -> AsyncIterator[list[Node]]:
    nodes = [Node(tmp_path, network, node_id) for node_id in NODES]
    for node in nodes:
        await node.start()
    yield nodes
    for node in nodes:
        await node.stop()


async def leading(nodes: list[Node]) -> Node:
    leader = await leader_of([node.replica for node in nodes])
    return next(node for node in nodes if node.replica is leader)


async def same_everywhere(nodes: list[Node]) -> None:
    """Equal applied offset, equal digest (design 10, same_offset_same_state)."""
    end = max(node.manager.applied_offset for node in nodes)
    async with asyncio.timeout(20):
        while {node.manager.applied_offset for node in nodes} != {end}:
            await asyncio.sleep(0.01)
            end = max(node.manager.applied_offset for node in nodes)
    assert len({node.manager.digest() for node in nodes}) == 1


async def test_what_any_node_writes_is_readable_there_and_the_same_everywhere(
    nodes: list[Node],
) -> None:
    await leading(nodes)
    answer = await nodes[0].manager.claim_partition(claim())
    await nodes[1].manager.record_log_start(LogStart(PARTITION, answer.token, 1, 0))
    for number, node in enumerate(nodes):
        segment = started(number, answer.token)
        await node.manager.add_remote_log_segment_metadata(segment)
        offset = await node.manager.update_remote_log_segment_metadata(finished(segment))
        found = node.manager.remote_log_segment_metadata(PARTITION, 1, number * 100)
        assert found is not None
        for other in nodes:
            await other.manager.wait_for_offset(offset, deadline_s=10)
    await same_everywhere(nodes)


async def test_a_running_node_that_was_cut_off_goes_on_from_the_leaders_snapshot(
    network: Network, nodes: list[Node]
) -> None:
    leader = await leading(nodes)
    await copied(leader.manager, 2)
    behind = next(node for node in nodes if node is not leader)
    others = [node for node in nodes if node is not behind]
    network.isolate(behind.replica.node_id, NODES)
    leader = await leading(others)
    await copied(leader.manager, 20, first=2, boot=2)
    await leader.manager.take_snapshot()
    assert leader.manager.describe().log_start_offset > behind.manager.applied_offset + 1
    network.cut.clear()
    await same_everywhere(nodes)
    assert behind.manager.remote_log_segment_metadata(PARTITION, 1, 2_150) is not None
    await copied(behind.manager, 1, first=22, boot=3)
    await same_everywhere(nodes)
