"""Metadata managers over replicas in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rlmm.log.log_limits import LogLimits
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.rows.feature_level import LEVELS_KNOWN
from rlmm.view.view import View
from tests.rlmm.metadata_node import NOW_MS, incarnation
from tests.rlmm.quorum.local_network import NODES, Network, Replica, leader_of, voters_of

SMALL = LogLimits(segment_bytes_max=2_000, retain_bytes_max=0, recent_bytes_max=0)


class Node:
    """A replica with its view and manager."""

    def __init__(self, home: Path, network: Network, node_id: int) -> None:
        self.replica = Replica(network, node_id, voters_of(*NODES))
        self._network = network
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
            limits=MetadataLimits(
                feature_levels=self._network.levels.get(self.replica.node_id, LEVELS_KNOWN)
            ),
            on_failure=self.failures.append,
        )

    async def stop(self) -> None:
        await self._manager.close()
        await self.replica.stop()
        assert self.view is not None
        self.view.close()
        assert self.failures == []


@asynccontextmanager
async def three_nodes(home: Path, network: Network) -> AsyncIterator[list[Node]]:
    """All three run; those that still do are stopped in the end."""
    nodes = [Node(home, network, node_id) for node_id in NODES]
    for node in nodes:
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            if node.replica.running:
                await node.stop()


async def leading(nodes: list[Node], *, deadline_s: float = 10) -> Node:
    leader = await leader_of([node.replica for node in nodes], deadline_s=deadline_s)
    return next(node for node in nodes if node.replica is leader)


async def same_everywhere(nodes: list[Node]) -> None:
    """Equal applied offset, equal digest."""
    end = max(node.manager.applied_offset for node in nodes)
    async with asyncio.timeout(20):
        while {node.manager.applied_offset for node in nodes} != {end}:
            await asyncio.sleep(0.01)
            end = max(node.manager.applied_offset for node in nodes)
    assert len({node.manager.digest() for node in nodes}) == 1
