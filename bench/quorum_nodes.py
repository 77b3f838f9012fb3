"""Three nodes of a quorum as processes, on a real disk, with Kafka's default time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.linearizability.node_process import NodeConfig
from tests.linearizability.processes import ProcessNode
from tests.real.ports import free_ports

NODES = (1, 2, 3)
LEADER_DEADLINE_S = 60.0
APPLIED_DEADLINE_S = 120.0
POLL_S = 0.01


def node_configs(home: Path, *, applies: bool = True) -> list[NodeConfig]:
    """Configurations of the nodes, on free ports."""
    free = free_ports(2 * len(NODES))
    ports = dict(zip(NODES, free, strict=False))
    return [
        NodeConfig(
            me,
            str(home / f"node-{me}"),
            client_port,
            ports,
            {other: port for other, port in ports.items() if other != me},
            applies=applies,
        )
        for me, client_port in zip(NODES, free[len(NODES) :], strict=True)
    ]


@asynccontextmanager
async def quorum(home: Path, *, applies: bool = True) -> AsyncIterator[list[ProcessNode]]:
    """Running nodes with a leader; killed at the end. Without `applies`: the log alone."""
    nodes = [ProcessNode(each) for each in node_configs(home, applies=applies)]
    try:
        for node in nodes:
            node.begin()
        await asyncio.gather(*(node.ready() for node in nodes))
        await leader(nodes)
        yield nodes
    finally:
        for node in nodes:
            if node.running:
                node.kill()


async def leader(nodes: list[ProcessNode]) -> ProcessNode:
    """The node that says that it leads and has committed in its epoch."""
    async with asyncio.timeout(LEADER_DEADLINE_S):
        while True:
            for node in nodes:
                known = await node.describe()
                if known["established"] and known["leader_id"] == node.node_id:
                    return node
            await asyncio.sleep(POLL_S)


async def all_applied(nodes: list[ProcessNode]) -> None:
    """Return once every node that applies has applied what is committed now."""
    end = max([(await node.describe())["high_watermark"] for node in nodes])
    async with asyncio.timeout(APPLIED_DEADLINE_S):
        for node in nodes:
            applied = (await node.describe())["applied"]
            while applied is not None and applied < end - 1:
                await asyncio.sleep(POLL_S)
                applied = (await node.describe())["applied"]


def listener_port(node: ProcessNode) -> int:
    """The port that takes the node's Produce requests."""
    return node.config.ports[node.node_id]
