"""Clients of three nodes in one process see one register a topic, whatever happens to the nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from rlmm.raft import high_watermark
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader
from tests.linearizability.clients import Clients, Endpoint
from tests.linearizability.faults import ALL, PARTITIONS, Fault, deafen, disturb, kill
from tests.linearizability.in_process import Cluster, Node
from tests.linearizability.policy_register import Done, Refused, Seen, Set, not_linearizable
from tests.rlm.virtual_time import run_virtually

SECONDS = 4.0
SOAK_SECONDS = 60.0
READ_DEADLINE_S = 30
PLANTED_SECONDS = 2.0
PLANTED_SEEDS_MAX = 8


@asynccontextmanager
async def running(home: Path, seed: int) -> AsyncIterator[Cluster]:
    cluster = Cluster(home, random.Random(f"delays of {seed}"))
    for node in cluster.nodes:
        await node.start()
    await cluster.whole()
    yield cluster
    await cluster.close()


async def recorded(
    cluster: Cluster,
    clients: Clients,
    seed: int,
    *,
    seconds: float,
    faults: tuple[Fault, ...] = ALL,
) -> None:
    """Clients at work under faults, then everything read once more in peace."""
    running_clients = asyncio.create_task(clients.run())
    await disturb(cluster, random.Random(seed), seconds=seconds, faults=faults)
    clients.stop()
    await running_clients
    try:
        await clients.read_everything(deadline_s=READ_DEADLINE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster}") from error


async def run_and_check(home: Path, seed: int, seconds: float) -> None:
    async with running(home, seed) as cluster:
        clients = Clients(cluster.nodes, seed=seed)
        await recorded(cluster, clients, seed, seconds=seconds)
        assert cluster.failures == []
        assert not_linearizable(clients.history) == {}
        end = max(node.log.describe().high_watermark for node in cluster.nodes)
        assert len({await node.state_at(end) for node in cluster.nodes}) == 1
        for node in cluster.nodes:
            assert await node.lost(clients.acknowledged) == []
        # A run that nearly stood still would prove nothing.
        assert len(clients.acknowledged) > 10 * seconds
        assert clients.unknown > 0


def test_histories_under_faults_are_linearizable(tmp_path: Path) -> None:
    run_virtually(partial(run_and_check, tmp_path, 1, SECONDS))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 12))
def test_long_histories_under_faults_are_linearizable(tmp_path: Path, seed: int) -> None:
    run_virtually(partial(run_and_check, tmp_path, seed, SOAK_SECONDS))


# ---- the proof that mistakes are found


class LocalReader:
    """Reads without a barrier: true at some earlier time, on a node that is behind."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def read(self, topic: str) -> Seen:
        if not self._node.running:
            return await self._node.read(topic)
        return self._node.read_locally(topic)

    async def set(self, topic: str, value: int, replaces: int) -> Done | Refused:
        return await self._node.set(topic, value, replaces)


class CarelessClients(Clients):
    """Take an unknown outcome for a failure."""

    repeat_unknown = 0.0

    def _in_doubt(self, client: int, topic: str, call: Set, invoked: int) -> None:
        pass


def own_log_end(r: Replica, leader: Leader) -> int:
    """What the leader alone has durably counts as committed."""
    return r.log.flushed_offset


async def found(home: Path, seed: int, clients: type[Clients], local: bool) -> bool:
    async with running(home, seed) as cluster:
        nodes = cluster.nodes
        endpoints: Sequence[Endpoint] = [LocalReader(each) for each in nodes] if local else nodes
        asking = clients(endpoints, seed=seed, groups=2, each=4)
        # Answers that are lost on their way leave outcomes unknown that were committed.
        faults = (deafen, kill) if clients is CarelessClients else PARTITIONS
        try:
            await recorded(cluster, asking, seed, seconds=PLANTED_SECONDS, faults=faults)
        except AssertionError as error:
            if "committed records were lost" not in str(error):
                raise
            return True  # a node has found it itself, and stopped
        return bool(not_linearizable(asking.history))


@pytest.mark.parametrize("mistake", ["local reads", "careless clients", "acknowledged early"])
def test_a_planted_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    kind = CarelessClients if mistake == "careless clients" else Clients
    early = own_log_end if mistake == "acknowledged early" else high_watermark.majority_end
    with patch.object(high_watermark, "majority_end", early):
        for seed in range(PLANTED_SEEDS_MAX):
            home = tmp_path / str(seed)
            if run_virtually(partial(found, home, seed, kind, mistake == "local reads")):
                return
    raise AssertionError(f"{mistake}: not found within {PLANTED_SEEDS_MAX} seeds")
