"""Clients of three processes see one register a topic: SIGKILL, SIGSTOP, blocked roads.

SIGKILL keeps the page cache, so nothing here is about fsync; power cuts are in test_in_process.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.linearizability.clients import Clients
from tests.linearizability.policy_register import not_linearizable
from tests.linearizability.processes import NODES, ProcessCluster

SECONDS = 20.0
SOAK_SECONDS = 120.0
HOLD_S = (0.1, 1.2)
QUIET_S = (0.1, 0.5)
READ_DEADLINE_S = 60


async def hold(choose: random.Random) -> None:
    await asyncio.sleep(choose.uniform(*HOLD_S))


async def kill(cluster: ProcessCluster, choose: random.Random) -> None:
    (await cluster.victim(choose)).kill()
    await hold(choose)


async def kill_all(cluster: ProcessCluster, choose: random.Random) -> None:
    for node in cluster.nodes:
        node.kill()


async def pause(cluster: ProcessCluster, choose: random.Random) -> None:
    """It goes on later and does not know that anything happened."""
    node = await cluster.victim(choose)
    node.send(signal.SIGSTOP)
    cluster.paused.add(node.node_id)
    await hold(choose)


async def isolate(cluster: ProcessCluster, choose: random.Random) -> None:
    """Neither way, or one way only; connections last, or end."""
    me = (await cluster.victim(choose)).node_id
    ways = choose.choice(("both", "there", "back"))
    for other in NODES:
        if other != me and ways != "back":
            cluster.block(me, other)
        if other != me and ways != "there":
            cluster.block(other, me)
    await hold(choose)
    if choose.random() < 0.5:
        for pair, road in cluster.roads.items():
            if me in pair:
                road.sever()


async def block_roads(cluster: ProcessCluster, choose: random.Random) -> None:
    for pair in choose.sample(sorted(cluster.roads), choose.randint(1, 3)):
        cluster.block(*pair)
    await hold(choose)


FAULTS: tuple[Callable[[ProcessCluster, random.Random], Awaitable[None]], ...] = (
    kill,
    kill_all,
    pause,
    pause,
    isolate,
    isolate,
    block_roads,
)


async def run_and_check(home: Path, seed: int, seconds: float) -> None:
    cluster = ProcessCluster(home)
    try:
        await cluster.start()
        clients = Clients(cluster.nodes, seed=seed)
        working = asyncio.create_task(clients.run())
        choose = random.Random(seed)
        ends = asyncio.get_running_loop().time() + seconds
        # Each kind at least once; then what the seed says.
        due = choose.sample(FAULTS, len(FAULTS))
        while due or asyncio.get_running_loop().time() < ends:
            await (due.pop() if due else choose.choice(FAULTS))(cluster, choose)
            await cluster.whole()
            await asyncio.sleep(choose.uniform(*QUIET_S))
        clients.stop()
        await working
        await clients.read_everything(deadline_s=READ_DEADLINE_S)
        assert not_linearizable(clients.history) == {}
        for node in cluster.nodes:
            assert await node.lost(clients.acknowledged) == []
        assert len(await cluster.digests()) == 1
        # A run that nearly stood still would prove nothing.
        assert len(clients.acknowledged) > 5 * seconds
        assert clients.unknown > 0
    finally:
        await cluster.close()


@pytest.mark.integration
async def test_histories_of_real_processes_are_linearizable(tmp_path: Path) -> None:
    await run_and_check(tmp_path, 1, SECONDS)


@pytest.mark.soak
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 8))
async def test_long_histories_of_real_processes_are_linearizable(tmp_path: Path, seed: int) -> None:
    await run_and_check(tmp_path, seed, SOAK_SECONDS)
