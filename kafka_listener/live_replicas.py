"""The read replicas that clients are told of: this one, and each other that the metadata log names
as live. Pure.

All replicas read it in the same log, so they tell clients the same within moments, and a partition
is served by one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_listener.virtual_nodes import REPLICA_IDS, Replica, VirtualNodes
from rlmm.records.node_facts import ReadAddress
from rlmm.rows.nodes import Liveness, RegisteredNode


@dataclass(slots=True)
class LiveReplicas:
    """The living replicas, as one of them knows them. `silent`: the fenced ones, which clients are
    not told of until they fetch the metadata log again.
    """

    own: Replica
    nodes: VirtualNodes = field(init=False)
    silent: tuple[Replica, ...] = ()

    def __post_init__(self) -> None:
        self.nodes = VirtualNodes.alone(self.own)

    def registered(self, nodes: Iterable[RegisteredNode]) -> None:
        """Take the nodes that the metadata log names now; this one may be among them. One whose id
        no virtual id is made of serves nobody, and is left out.
        """
        by_liveness: dict[Liveness, list[Replica]] = {each: [] for each in Liveness}
        for node in nodes:
            is_other = node.node_id != self.own.node_id and 0 <= node.node_id < REPLICA_IDS
            if is_other and node.facts.read is not None:
                by_liveness[node.liveness].append(replica_at(node.node_id, node.facts.read))
        self.silent = tuple(by_liveness[Liveness.FENCED])
        replicas = sorted((self.own, *by_liveness[Liveness.LIVE]), key=lambda each: each.node_id)
        self.nodes = VirtualNodes(self.own, tuple(replicas))


def replica_at(node_id: int, at: ReadAddress) -> Replica:
    """The replica that a node is by what it registered with."""
    return Replica(node_id, at.host, at.port, at.zone)
