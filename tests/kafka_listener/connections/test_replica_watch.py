"""The watch for other replicas: nodes' rows are gone through when they changed, not each second."""

from __future__ import annotations

from dataclasses import replace

from kafka_listener.connections.replica_watch import ReplicaWatch
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import Replica
from rlmm.records.node_facts import NodeFacts, ReadAddress
from rlmm.rows.nodes import Liveness, RegisteredNode
from tests.kafka_listener.test_live_replicas import OWN, registered


class CountedReplicas(LiveReplicas):
    """Counts how often they were told anew."""

    taken = 0

    def registered(self, nodes: object) -> None:
        self.taken += 1
        super().registered(nodes)  # type: ignore[arg-type]


class Scene:
    def __init__(self) -> None:
        self.replicas = CountedReplicas(OWN)
        self.nodes: tuple[RegisteredNode, ...] = (
            registered(1),
            registered(2),
            registered(3, reads=False),
        )
        self.watch = ReplicaWatch(self.replicas, lambda: self.nodes, self._sleep)

    async def _sleep(self, _seconds: float) -> None: ...

    def told(self) -> list[int]:
        self.watch.look()
        return [each.node_id for each in self.replicas.nodes.replicas]


def test_registered_nodes_are_gone_through_once_for_each_change() -> None:
    scene = Scene()
    assert scene.told() == [1, 2]
    assert scene.told() == [1, 2]
    assert scene.replicas.taken == 1
    scene.nodes = (*scene.nodes[:2], registered(3))
    assert scene.told() == [1, 2, 3]
    assert scene.replicas.taken == 2


def test_an_address_that_changed_is_told() -> None:
    scene = Scene()
    scene.told()
    moved = replace(registered(2), facts=NodeFacts(ReadAddress("elsewhere", 19_092, "b")))
    scene.nodes = (scene.nodes[0], moved)
    scene.told()
    assert scene.replicas.nodes.replicas[1] == Replica(2, "elsewhere", 19_092, "b")


def test_one_that_is_fenced_is_told_no_more_until_it_is_back() -> None:
    scene = Scene()
    scene.told()
    before = scene.nodes
    scene.nodes = (before[0], registered(2, Liveness.FENCED))
    assert scene.told() == [1]
    scene.nodes = before
    assert scene.told() == [1, 2]
