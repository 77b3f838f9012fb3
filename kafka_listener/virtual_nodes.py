"""The nodes that clients of a read replica see: one for each (replica, broker). Pure.

Clients connect only to nodes from Metadata and FindCoordinator, and may request Metadata from any
node. So a single answer with a real id or address would lead them away from the replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

FIRST_ID = 1 << 24
BROKER_IDS = 1 << 15
"""Brokers with an id at or above this have no virtual node. As it is below `FIRST_ID`, no virtual
id is a broker's.
"""
REPLICA_IDS = 1 << 14
"""Replicas with an id at or above this have no virtual nodes. So virtual ids are below 2^30: Java's
client numbers its connections to coordinators down from 2^31, by node id.
"""
PORT_MAX = 65_535

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Replica:
    """A read replica: its node id, the host and bootstrap port that clients are given, and its zone
    ("": none).
    """

    node_id: int
    host: str
    port: int
    zone: str = ""


@dataclass(frozen=True, slots=True)
class VirtualNode:
    """A node as a client sees it."""

    node_id: int
    host: str
    port: int
    zone: str


def virtual_id(replica_id: int, broker_id: int) -> int:
    """The virtual id of that pair: it never changes, and no broker has it."""
    if not 0 <= replica_id < REPLICA_IDS:
        raise ValueError(f"the id {replica_id} of a read replica is not below {REPLICA_IDS}")
    if not 0 <= broker_id < BROKER_IDS:
        raise ValueError(f"the broker id {broker_id} is not below {BROKER_IDS}")
    return FIRST_ID + replica_id * BROKER_IDS + broker_id


def port_of(first_port: int, broker_id: int) -> int:
    """The port for connections to that broker; `first_port` itself is for bootstrap. It depends on
    the id alone: if a port moved to a different broker, clients would reach the wrong one.
    """
    return first_port + 1 + broker_id


def can_be_shown(first_port: int, broker_id: int) -> bool:
    """True if that broker has a virtual id and a port."""
    return 0 <= broker_id < BROKER_IDS and port_of(first_port, broker_id) <= PORT_MAX


@dataclass(frozen=True, slots=True)
class VirtualNodes:
    """The nodes of all live replicas. `own` is among `replicas`."""

    own: Replica
    replicas: tuple[Replica, ...]

    @classmethod
    def alone(cls, own: Replica) -> VirtualNodes:
        return cls(own, (own,))

    def shown(self, broker_id: int) -> bool:
        """True if clients see a node for this broker."""
        return can_be_shown(self.own.port, broker_id)

    def node(self, replica: Replica, broker_id: int) -> VirtualNode:
        """The node for a broker that the replica has a port for."""
        port = port_of(replica.port, broker_id)
        id_ = virtual_id(replica.node_id, broker_id)
        return VirtualNode(id_, replica.host, port, replica.zone)

    def all_nodes(self, brokers: Iterable[int]) -> tuple[VirtualNode, ...]:
        """Every replica's node for every broker that is `shown`, ordered by replica and
        broker id.
        """
        shown = sorted({broker for broker in brokers if self.shown(broker)})
        replicas = sorted(self.replicas, key=lambda replica: replica.node_id)
        return tuple(
            self.node(replica, broker)
            for replica in replicas
            for broker in shown
            if can_be_shown(replica.port, broker)
        )

    def serving(self, topic: bytes, partition: int, leader: int) -> tuple[VirtualNode, ...]:
        """The nodes of all replicas for a partition whose leader is `shown`, beginning with the one
        that serves it. `topic`: its id, or its name if it has none. By rendezvous hashing only the
        share of a replica that comes or goes moves.
        """
        able = (replica for replica in self.replicas if can_be_shown(replica.port, leader))
        order = sorted(
            able,
            key=lambda replica: (_weight(topic, partition, replica), replica.node_id),
            reverse=True,
        )
        return tuple(self.node(replica, leader) for replica in order)

    def has_nearer(self, zone: str) -> bool:
        """True if a different replica is in the client's zone and this one is not."""
        return zone != self.own.zone and any(each.zone == zone for each in self.replicas)

    def nearer(self, zone: str, topic: bytes, partition: int, leader: int) -> VirtualNode | None:
        """The node in the client's zone to read from (KIP-392); None: this replica will do."""
        if not self.has_nearer(zone):
            return None
        nodes = self.serving(topic, partition, leader)
        return next((node for node in nodes if node.zone == zone), None)


def _weight(topic: bytes, partition: int, replica: Replica) -> bytes:
    hashed = blake2b(topic, digest_size=8)
    hashed.update(partition.to_bytes(4, "big", signed=True))  # a client may send any number
    hashed.update(replica.node_id.to_bytes(4, "big"))
    return hashed.digest()


def not_shown(brokers: Iterable[int], nodes: VirtualNodes) -> tuple[int, ...]:
    """The brokers that clients cannot see, for a message."""
    return tuple(sorted(broker for broker in brokers if not nodes.shown(broker)))
