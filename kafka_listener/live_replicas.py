"""The read replicas that clients are sent to: this one, and each other one that is live in the
metadata log. Pure.

All replicas read the same log, so within moments they send clients to the same nodes, and one
replica serves a partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_listener.virtual_nodes import REPLICA_IDS, Replica, VirtualNodes
from rlmm.records.node_facts import ReadAddress
from rlmm.rows.nodes import Liveness, RegisteredNode


@dataclass(slots=True)
class LiveReplicas:
    """The live replicas, as one of them sees them. `silent`: the fenced ones, which clients are not
    sent to until they fetch the metadata log again.
    """

    own: Replica
    nodes: VirtualNodes = field(init=False)
    silent: tuple[Replica, ...] = ()

    def __post_init__(self) -> None:
        self.nodes = VirtualNodes.alone(self.own)

    def registered(self, nodes: Iterable[RegisteredNode]) -> None:
        """Take over the nodes registered in the metadata log, of which this one may be one. A node
        whose id is too large for a virtual id serves no client, and is left out.
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
    """The read replica of a node, by the address that it registered."""
    return Replica(node_id, at.host, at.port, at.zone)
