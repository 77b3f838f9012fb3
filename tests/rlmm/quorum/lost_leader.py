"""A quorum that loses its leader, and a node that is asked meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx

from strandline.node.remote_log import RemoteLogParts
from tests.api.fakes import app_over, make_node
from tests.rlmm.quorum.local_network import NODES, QUICK, Network
from tests.rlmm.quorum.three_managers import Node

PATIENT = replace(QUICK, pre_vote_retry_ms=200, retry_backoff_ms=100)
"""For nodes that are cut off for long: they ask for votes five times a second, not fifty."""


async def eventually(condition: Callable[[], bool]) -> None:
    """Let time pass until `condition` holds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


async def lose_the_leader(network: Network, nodes: list[Node]) -> None:
    """No two nodes can talk any more, and each has noticed."""
    for node_id in NODES:
        network.isolate(node_id, NODES)
    await eventually(
        lambda: not {node.manager.describe().state for node in nodes} & {"leader", "follower"}
    )


@asynccontextmanager
async def asked(
    node: Node, parts: RemoteLogParts | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """The node's HTTP interface."""
    context = replace(make_node().context, manager=node.manager)
    if parts is not None:
        context = replace(context, reads=parts.reads)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app_over(context)), base_url="http://localhost"
    ) as client:
        yield client
