"""Replaces brokers by virtual nodes in a broker's answers. Pure.

Each function changes the answer in place. A broker without a virtual node is left out, as if it did
not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_listener.protocol.apis import Versions, announced
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.virtual_nodes import Address, VirtualNode, VirtualNodes
from rlmm.wire.schema import Values

NOBODY = -1
GROUP = 0
"""The key type of FindCoordinator that is served: groups; 1 is transactions, 2 share groups."""
BROKERS = 1
"""The endpoint type of DescribeCluster that is served: brokers; 2 is controllers."""

TRANSACTIONS_REFUSED = "a read replica serves no transactions: use the brokers"

BROKER_AWAY = "the broker cannot be reached now: try again"
UNREADABLE = "the broker's answer cannot be read"


@dataclass(frozen=True, slots=True)
class TopicNameAndId:
    """A topic's name and id, as a broker reported them."""

    name: str
    topic_id: bytes


def brokers_in(body: Values) -> dict[int, Address]:
    """The brokers in an answer to Metadata, before it is rewritten."""
    return {each["node_id"]: (each["host"], each["port"]) for each in body["brokers"]}


def cluster_brokers_in(body: Values) -> dict[int, Address]:
    """The brokers in an answer to DescribeCluster, before it is rewritten."""
    return {each["broker_id"]: (each["host"], each["port"]) for each in body["brokers"]}


def coordinators_in(body: Values) -> dict[int, Address]:
    """The brokers in an answer to FindCoordinator, before it is rewritten."""
    return {
        found["node_id"]: (found["host"], found["port"])
        for found in _found_coordinators(body)
        if found["error_code"] == 0
    }


def topics_in(body: Values) -> tuple[TopicNameAndId, ...]:
    """The topics that an answer to Metadata names by name and id."""
    return tuple(
        TopicNameAndId(topic["name"], topic["topic_id"])
        for topic in body["topics"]
        if topic["error_code"] == 0 and topic["name"] and any(topic.get("topic_id") or b"")
    )


def rewrite_metadata(body: Values, nodes: VirtualNodes) -> None:
    """Rewrite an answer to Metadata: all nodes, the controller, and each partition's leader and
    replicas.
    """
    brokers = [each["node_id"] for each in body["brokers"]]
    body["brokers"] = [_described(node) for node in nodes.all_nodes(brokers)]
    body["controller_id"] = _id_at(body["controller_id"], nodes)
    for topic in body["topics"]:
        topic_id = topic.get("topic_id") or (topic["name"] or "").encode()
        for partition in topic["partitions"]:
            _rewrite_partition(partition, topic_id, nodes)


def _rewrite_partition(partition: Values, topic_id: bytes, nodes: VirtualNodes) -> None:
    leader = partition["leader_id"]
    partition["offline_replicas"] = []
    if leader < 0 or not nodes.shown(leader):
        partition["leader_id"] = NOBODY
        partition["replica_nodes"] = partition["isr_nodes"] = []
        if partition["error_code"] == 0:
            partition["error_code"] = ErrorCode.LEADER_NOT_AVAILABLE
        return
    serving = nodes.serving(topic_id, partition["partition_index"], leader)
    ids = [node.node_id for node in serving]
    partition["leader_id"] = ids[0]
    partition["replica_nodes"] = partition["isr_nodes"] = ids


def rewrite_cluster(body: Values, nodes: VirtualNodes) -> None:
    """Rewrite an answer to DescribeCluster."""
    brokers = [each["broker_id"] for each in body["brokers"]]
    body["brokers"] = [
        _described(node, "broker_id") | {"is_fenced": False} for node in nodes.all_nodes(brokers)
    ]
    body["controller_id"] = _id_at(body["controller_id"], nodes)


def rewrite_coordinators(body: Values, nodes: VirtualNodes) -> None:
    """Rewrite an answer to FindCoordinator of any version."""
    for found in _found_coordinators(body):
        broker = found["node_id"]
        if found["error_code"] == 0 and not nodes.shown(broker):
            found["error_code"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if found["error_code"]:
            # Kafka's brokers fill in these values beside an error.
            found |= {"node_id": NOBODY, "host": "", "port": NOBODY}
        else:
            node = nodes.node(nodes.own, broker)
            found |= {"node_id": node.node_id, "host": node.host, "port": node.port}


def _found_coordinators(body: Values) -> Iterable[Values]:
    """The coordinators of an answer: up to version 3 there is one, in the answer itself."""
    coordinators: Iterable[Values] = body.get("coordinators", (body,))
    return coordinators


def no_coordinator(request: Values, error: ErrorCode, why: str) -> Values:
    """An answer to FindCoordinator without a coordinator, for every version."""
    one = {"error_code": error, "error_message": why}
    one |= {"node_id": NOBODY, "host": "", "port": NOBODY}
    return one | {
        "coordinators": [one | {"key": key} for key in request.get("coordinator_keys") or ()]
    }


def rewrite_versions(body: Values, *, logs_in: bool) -> None:
    """Rewrite an answer to ApiVersions: it lists the versions that both this node and the broker
    support.
    """
    body["api_keys"] = api_keys(versions_in(body), logs_in=logs_in)


def versions_in(body: Values) -> dict[int, Versions]:
    return {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in body["api_keys"]
    }


def api_keys(broker: Mapping[int, Versions], *, logs_in: bool) -> list[Values]:
    """The list of an ApiVersions answer."""
    return [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in sorted(announced(broker, logs_in=logs_in).items())
    ]


def _described(node: VirtualNode, id_name: str = "node_id") -> Values:
    zone = node.zone or None
    return {id_name: node.node_id, "host": node.host, "port": node.port, "rack": zone}


def _id_at(broker: int, nodes: VirtualNodes) -> int:
    if broker < 0 or not nodes.shown(broker):
        return NOBODY
    return nodes.node(nodes.own, broker).node_id
