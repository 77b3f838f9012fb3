"""The watch for other replicas: nodes' rows are gone through when they changed, not each second."""

from __future__ import annotations

from dataclasses import replace

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_listener.connections.replica_watch import ReplicaWatch
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import Replica
from rlmm.quorum.silences import Silences
from rlmm.records.node_facts import NodeFacts, ReadAddress
from rlmm.rows.nodes import RegisteredNode

OWN = Replica(1, "replica-1", 19_092)


def registered(node_id: int, *, reads: bool = True) -> RegisteredNode:
    address = ReadAddress(f"replica-{node_id}", 19_092, "a") if reads else None
    return RegisteredNode(node_id, Uuid(bytes(16)), 1, 5, 5, 0, facts=NodeFacts(address))


class CountedReplicas(LiveReplicas):
    """Counts how often they were told anew."""

    taken = 0

    def registered(self, others: object) -> None:
        self.taken += 1
        super().registered(others)  # type: ignore[arg-type]


class Scene:
    def __init__(self) -> None:
        self.replicas = CountedReplicas(OWN, 10.0)
        self.nodes: tuple[RegisteredNode, ...] = (
            registered(1),
            registered(2),
            registered(3, reads=False),
        )
        self.silences: Silences | None = Silences(5, {1: 0, 2: 300, 3: 300})
        self.watch = ReplicaWatch(
            self.replicas, lambda: self.nodes, self._ask, lambda: 100.0, self._sleep
        )

    async def _ask(self) -> Silences:
        if self.silences is None:
            raise RetryLater("no leader")
        return self.silences

    async def _sleep(self, _seconds: float) -> None: ...

    async def told(self) -> list[int]:
        await self.watch.look()
        return [each.node_id for each in self.replicas.nodes.replicas]


async def test_registered_nodes_are_gone_through_once_for_each_change() -> None:
    scene = Scene()
    assert await scene.told() == [1, 2]
    assert await scene.told() == [1, 2]
    assert scene.replicas.taken == 1
    scene.nodes = (*scene.nodes[:2], registered(3))
    assert await scene.told() == [1, 2, 3]
    assert scene.replicas.taken == 2


async def test_an_address_that_changed_is_told() -> None:
    scene = Scene()
    await scene.told()
    moved = replace(registered(2), facts=NodeFacts(ReadAddress("elsewhere", 19_092, "b")))
    scene.nodes = (scene.nodes[0], moved)
    await scene.told()
    assert scene.replicas.nodes.replicas[1] == Replica(2, "elsewhere", 19_092, "b")


async def test_without_a_leader_who_lives_stays_and_silence_is_still_told_each_time() -> None:
    scene = Scene()
    await scene.told()
    scene.silences = None
    assert await scene.told() == [1, 2]
    scene.silences = Silences(5, {1: 0, 2: 10_001})
    assert await scene.told() == [1]
