"""A voter that comes back under another address is found there (KIP-853, UpdateVoter)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kafka_formats.errors import StrandlineError
from rlmm.quorum.admin import QuorumAdmin
from tests.real.ports import free_ports
from tests.rlmm.quorum.following import collect, data
from tests.rlmm.wire.wire_network import HOST, WireReplica, leader_of, replicas


def address_of(node: WireReplica, seen_by: WireReplica) -> str:
    (found,) = (
        each.address for each in seen_by.log.describe().voters if each.node_id == node.node_id
    )
    return found


async def test_a_voter_on_another_port_is_found_there_and_can_lead() -> None:
    async with replicas() as nodes:
        leader = await leader_of(nodes)
        await leader.log.propose(data(b"before"), deadline_s=10)
        moved = next(node for node in nodes if node is not leader)
        await moved.stop()
        moved.port, moved.advertises = free_ports(1)[0], True
        await moved.start()
        async with asyncio.timeout(20):
            while any(address_of(moved, node) != f"{HOST}:{moved.port}" for node in nodes):
                await asyncio.sleep(0.01)
        # The others can follow it only where it is now.
        async with asyncio.timeout(60):
            while (leader := await leader_of(nodes)) is not moved:
                with suppress(StrandlineError):
                    await QuorumAdmin(leader.log.driver).transfer(moved.node_id, deadline_s=5)
                await asyncio.sleep(0.2)
        end = await moved.log.propose(data(b"after"), deadline_s=10) + 1
        logs = [await collect(node, end) for node in nodes]
        assert logs[0] == logs[1] == logs[2]


async def test_a_sole_voter_that_moved_says_so_itself() -> None:
    async with replicas(count=1) as (node,):
        await node.stop()
        node.port, node.advertises = free_ports(1)[0], True
        await node.start()
        await leader_of([node])
        assert address_of(node, node) == f"{HOST}:{node.port}"
