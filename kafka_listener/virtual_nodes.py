"""The nodes that clients of a read replica are told of: one for each (replica, broker). Pure.

Clients go only where Metadata and FindCoordinator send them, and any of them may ask for Metadata
anywhere. So a real id or address in a single answer would lead them away from the replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

FIRST_ID = 1 << 24
BROKER_IDS = 1 << 15
"""Ids of brokers that have a virtual node are below; all of them are below `FIRST_ID`, too."""
REPLICA_IDS = 1 << 14
"""The same of replicas. The largest virtual id is below 2^30: Java's client numbers its connections
to coordinators down from 2^31, by node id.
"""
PORT_MAX = 65_535

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Replica:
    """A read replica: its node id, and the host and first port that clients are told."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VirtualNode:
    """A node as a client sees it."""

    node_id: int
    host: str
    port: int


def virtual_id(replica_id: int, broker_id: int) -> int:
    """The id of that pair: the same for ever, and no broker's."""
    if not 0 <= replica_id < REPLICA_IDS:
        raise ValueError(f"the id {replica_id} of a read replica is not below {REPLICA_IDS}")
    if not 0 <= broker_id < BROKER_IDS:
        raise ValueError(f"the broker id {broker_id} is not below {BROKER_IDS}")
    return FIRST_ID + replica_id * BROKER_IDS + broker_id


def port_of(first_port: int, broker_id: int) -> int:
    """The port for connections to that broker; `first_port` itself is for clients that know none.

    The id alone decides: a port that moved to another broker would lead clients to a wrong one.
    """
    return first_port + 1 + broker_id


def can_be_shown(first_port: int, broker_id: int) -> bool:
    """True if there are an id and a port for that broker."""
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
        """False: a client is told of no node for this broker."""
        return all(can_be_shown(replica.port, broker_id) for replica in self.replicas)

    def node(self, replica: Replica, broker_id: int) -> VirtualNode:
        """The node for a broker that is `shown`."""
        port = port_of(replica.port, broker_id)
        return VirtualNode(virtual_id(replica.node_id, broker_id), replica.host, port)

    def all_nodes(self, brokers: Iterable[int]) -> tuple[VirtualNode, ...]:
        """Every replica's node for every broker that is `shown`, in the order of ids."""
        shown = sorted({broker for broker in brokers if self.shown(broker)})
        replicas = sorted(self.replicas, key=lambda replica: replica.node_id)
        return tuple(self.node(replica, broker) for replica in replicas for broker in shown)

    def by_partition(self, topic_id: bytes, partition: int) -> tuple[Replica, ...]:
        """All replicas, the one that serves the partition first. Rendezvous hashing: a replica that
        comes or goes moves its own share only.
        """
        return tuple(
            sorted(
                self.replicas,
                key=lambda replica: (_weight(topic_id, partition, replica), replica.node_id),
                reverse=True,
            )
        )


def _weight(topic_id: bytes, partition: int, replica: Replica) -> bytes:
    hashed = blake2b(topic_id, digest_size=8)
    hashed.update(partition.to_bytes(4, "big"))
    hashed.update(replica.node_id.to_bytes(4, "big"))
    return hashed.digest()


def not_shown(brokers: Mapping[int, Address], nodes: VirtualNodes) -> tuple[int, ...]:
    """Brokers that no client can be told of, for a message."""
    return tuple(sorted(broker for broker in brokers if not nodes.shown(broker)))
