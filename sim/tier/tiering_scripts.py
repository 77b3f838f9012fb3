"""Deeds of scripts about partitions that brokers tier themselves.

tiered             at first: the partition is one that its brokers tier
late               at first: one that they tier once `tier` says so; until then nodes copy it
task N NAME        broker N's remote log manager runs `copy`, `expire` or `follow` once
keep K             retention keeps K offsets from now on; `keep all`
retain N           local retention of broker N
consume N OFFSET   a consumer reads there from broker N, as far as the segment goes
rebuild N          broker N fetches, or builds its log on the tier
mark K             the leader writes K transactions that are aborted
stop N, come N     broker N stops, or starts
away N, empty N    the replica on broker N goes to another broker; an empty one comes
delete topic       ... and its brokers delete what is in the tier, seconds later; `... now`: at once
tier               remote.storage.enable=true, and the mode delegated
mode NAME          an admin sets the mode
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from rlmm.partition_state import Mode
from sim.tier.delegated import DELETE_MS_MAX
from sim.tier.partition import Partition
from sim.tier.tier_consumers import THROWN, short
from sim.tier.tiering import TieringBroker

if TYPE_CHECKING:
    from sim.tier.world import World

TASK_MS_MAX = 60_000
AT_FIRST = frozenset({"tiered", "late"})
TASKS = frozenset({"copy", "expire", "follow"})


def begin(world: World, lines: Sequence[str]) -> Partition:
    """The partition of a script about one that brokers tier; its brokers run."""
    (other,) = world.brokers.partitions
    world.brokers.partitions.clear()
    for replica in other.replicas.values():
        replica.remove()
    delegated = world.delegated
    delegated.links.kinds = set()
    delegated.repeats = False
    (partition,) = delegated.partitions
    partition.is_tiered = "tiered" in lines
    delegated.start_brokers()
    return partition


def do(world: World, partition: Partition, verb: str, words: Sequence[str]) -> bool:
    """Carry out a deed; False: it is none of these."""
    delegated = world.delegated
    match verb, words:
        case "task", [node, name] if name in TASKS:
            broker = delegated.brokers[int(node)]
            _until_done(world, broker, _task(broker, partition, name), name)
        case "keep", [offsets]:
            delegated.keeps = None if offsets == "all" else int(offsets)
        case "retain", [node]:
            delegated.brokers[int(node)].retain_locally(partition)
        case "consume", [node, offset]:
            broker = delegated.brokers[int(node)]
            _until_done(
                world, broker, broker.consumers.consume(partition, int(offset)), "a consumer"
            )
        case "rebuild", [node]:
            delegated.replicate(partition, int(node))
        case "mark", [count]:
            for _ in range(int(count)):
                partition.append_aborted(world.now_ms())
        case "stop" | "come", [node]:
            world.brokers.switch(world.machine(int(node)))
        case "away", [node]:
            delegated.move_away(partition, int(node))
        case "empty", [node]:
            delegated.move_back(partition, int(node))
        case "delete", ["topic"]:
            delegated.delete_topic(partition, delay_ms=DELETE_MS_MAX)
        case "delete", ["topic", "now"]:
            delegated.delete_topic(partition, delay_ms=0)
        case "tier", []:
            delegated.modes.let_tier(partition)
        case "mode", [name]:
            delegated.modes.set_mode(partition, Mode[name.upper()])
        case _:
            return False
    return True


def take(world: World, partition: Partition, start: int) -> None:
    """DeleteRecords at the leader."""
    leader = partition.leading
    assert leader is not None
    world.delegated.audit.takes(partition, leader, start)
    partition.delete_records(partition.leader, start)


def _task(broker: TieringBroker, partition: Partition, name: str) -> Coroutine[Any, Any, None]:
    tiered = broker.known[partition.tip]
    run: Coroutine[Any, Any, None] = getattr(broker, name)(tiered)
    return run


def _until_done(
    world: World, broker: TieringBroker, deed: Coroutine[Any, Any, object], name: str
) -> None:
    done: list[bool] = []

    async def run() -> None:
        try:
            await deed
        except THROWN as error:
            world.note(f"broker {broker.node_id}: {name} ends: {short(error)}")
        done.append(True)

    world.loop.spawn(broker.life, run())
    until_ms = world.schedule.now_ms + TASK_MS_MAX
    while not done and world.schedule.now_ms < until_ms and world.turn():
        pass
