"""What happens to nodes in one process while clients are at work; drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.linearizability.in_process import NODES, Cluster, Node
from tests.rlmm.log.crash_disk import Fate, Survivors, Torn

HOLD_S = (0.05, 0.5)
QUIET_S = (0.02, 0.2)

Fault = Callable[[Cluster, random.Random], Awaitable[None]]


def victim(cluster: Cluster, choose: random.Random) -> Node:
    """The leader more often than not."""
    leader = cluster.leader()
    return leader if leader is not None and choose.random() < 0.6 else choose.choice(cluster.nodes)


async def hold(choose: random.Random) -> None:
    await asyncio.sleep(choose.uniform(*HOLD_S))


async def isolate(cluster: Cluster, choose: random.Random) -> None:
    cluster.network.isolate(victim(cluster, choose).replica.node_id, NODES)
    await hold(choose)


async def deafen(cluster: Cluster, choose: random.Random) -> None:
    """It sends and hears nothing."""
    me = victim(cluster, choose).replica.node_id
    cluster.network.cut |= {(other, me) for other in NODES}
    await hold(choose)


async def silence(cluster: Cluster, choose: random.Random) -> None:
    """It hears and sends nothing."""
    me = victim(cluster, choose).replica.node_id
    cluster.network.cut |= {(me, other) for other in NODES}
    await hold(choose)


async def cut_links(cluster: Cluster, choose: random.Random) -> None:
    """Some directions of some links."""
    pairs = [(a, b) for a in NODES for b in NODES if a != b]
    cluster.network.cut |= set(choose.sample(pairs, choose.randint(1, 3)))
    await hold(choose)


async def restart(cluster: Cluster, choose: random.Random) -> None:
    await victim(cluster, choose).stop()
    await hold(choose)


async def kill(cluster: Cluster, choose: random.Random) -> None:
    """The process ends; what it wrote stays, synced or not."""
    await victim(cluster, choose).crash(Survivors.ALL, Survivors.ALL)
    await hold(choose)


async def cut_power(cluster: Cluster, choose: random.Random) -> None:
    await victim(cluster, choose).crash(_fate(choose), _fate(choose))
    await hold(choose)


async def cut_all_power(cluster: Cluster, choose: random.Random) -> None:
    """Of all three at the same instant: nothing but the disks remembers."""
    fates = [(_fate(choose), _fate(choose)) for _ in cluster.nodes]
    crashes = [node.crash(*fate) for node, fate in zip(cluster.nodes, fates, strict=True)]
    await asyncio.gather(*crashes)


def _fate(choose: random.Random) -> Fate:
    if choose.random() < 0.3:
        return Torn(choose.randrange(1 << 30), ordered=True)
    return choose.choice((Survivors.NONE, Survivors.FIRST_HALF, Survivors.ALL))


PARTITIONS: tuple[Fault, ...] = (isolate, deafen, silence, cut_links)
ALL: tuple[Fault, ...] = (*PARTITIONS, restart, kill, cut_power, cut_all_power)


async def disturb(
    cluster: Cluster, choose: random.Random, *, seconds: float, faults: tuple[Fault, ...] = ALL
) -> None:
    """One fault after the other, each healed before the next, for about so long."""
    ends = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        await choose.choice(faults)(cluster, choose)
        await cluster.whole()
        await asyncio.sleep(choose.uniform(*QUIET_S))
