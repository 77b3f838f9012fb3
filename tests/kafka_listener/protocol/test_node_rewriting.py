"""Nothing of the brokers' own ids and addresses is in what clients are told, in any version."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafka_listener.protocol import node_rewriting
from kafka_listener.protocol.apis import SERVED, Api, Treatment, announced, served
from kafka_listener.protocol.codec import Head, decode_response, encode_response
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.virtual_nodes import Replica, VirtualNodes

OWN, OTHER = Replica(100, "replica-a", 19_092, "a"), Replica(101, "replica-b", 19_092)
NODES = VirtualNodes(OWN, (OWN, OTHER))
REAL = {7: ("broker-seven.example", 9_192), 9: ("broker-nine.example", 9_193)}
TOPIC_ID = bytes(range(16))


def versions(api: Api) -> list[Any]:
    return [
        pytest.param(Head(api, each, 5), id=f"v{each}")
        for each in range(SERVED[api].low, SERVED[api].high + 1)
    ]


def metadata(leader: int = 7, error: int = 0) -> dict[str, Any]:
    partition = {
        "error_code": error, "partition_index": 3, "leader_id": leader, "leader_epoch": 12,
        "replica_nodes": [7, 9], "isr_nodes": [7, 9], "offline_replicas": [9],
    }  # fmt: skip
    topic = {"error_code": 0, "name": "orders", "topic_id": TOPIC_ID, "partitions": [partition]}
    brokers = [
        {"node_id": node, "host": host, "port": port, "rack": "zone-real"}
        for node, (host, port) in REAL.items()
    ]
    return {"brokers": brokers, "cluster_id": "the-cluster", "controller_id": 9, "topics": [topic]}


def sent(head: Head, body: dict[str, Any]) -> dict[str, Any]:
    """The answer as a client decodes it, without a trace of the brokers."""
    frame = encode_response(head, body)
    for node, (host, port) in REAL.items():
        assert host.encode() not in frame
        assert struct.pack(">i", port) not in frame
        assert struct.pack(">i", node) not in frame
    assert b"zone-real" not in frame
    return decode_response(head, frame[4:])


def as_broker(head: Head, body: dict[str, Any]) -> dict[str, Any]:
    return decode_response(head, encode_response(head, body)[4:])


@pytest.mark.parametrize("head", versions(Api.METADATA))
def test_metadata_names_replicas_and_the_cluster_as_it_is(head: Head) -> None:
    body = as_broker(head, metadata())
    assert node_rewriting.brokers_in(body) == REAL
    node_rewriting.rewrite_metadata(body, NODES)
    told = sent(head, body)
    ids = [each["node_id"] for each in told["brokers"]]
    assert len(ids) == 4
    assert [each.get("rack") for each in told["brokers"]] == (
        ["a", "a", None, None] if head.version else [None] * 4
    )
    assert told["cluster_id"] == "the-cluster"
    assert told["controller_id"] in ids
    (partition,) = told["topics"][0]["partitions"]
    assert partition["leader_id"] in ids
    assert partition["leader_id"] == partition["replica_nodes"][0]
    assert set(partition["replica_nodes"]) == set(partition["isr_nodes"]) < set(ids)
    assert partition.get("leader_epoch", 12) == 12


@pytest.mark.parametrize("leader", [-1, 40_000])
def test_a_partition_that_nobody_leads_or_nobody_that_is_shown_has_no_leader(leader: int) -> None:
    body = metadata(leader)
    node_rewriting.rewrite_metadata(body, NODES)
    (partition,) = sent(Head(Api.METADATA, 12, 5), body)["topics"][0]["partitions"]
    assert partition["leader_id"] == -1
    assert partition["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE


def test_topics_that_metadata_names_are_taken_with_their_ids() -> None:
    assert node_rewriting.topics_in(metadata()) == (
        node_rewriting.TopicNameAndId("orders", TOPIC_ID),
    )
    oldest = as_broker(Head(Api.METADATA, 9, 5), metadata())
    assert node_rewriting.topics_in(oldest) == ()


@pytest.mark.parametrize("head", versions(Api.FIND_COORDINATOR))
def test_a_coordinator_is_this_replicas_node_of_its_broker(head: Head) -> None:
    one = {"error_code": 0, "node_id": 9, "host": REAL[9][0], "port": REAL[9][1]}
    body = as_broker(head, {**one, "coordinators": [{**one, "key": "group"}]})
    node_rewriting.rewrite_coordinators(body, NODES)
    told = sent(head, body)
    (found,) = told.get("coordinators", [told])
    node = NODES.node(OWN, 9)
    assert (found["node_id"], found["host"], found["port"]) == (node.node_id, node.host, node.port)


@pytest.mark.parametrize("head", versions(Api.FIND_COORDINATOR))
def test_an_error_about_a_coordinator_names_none(head: Head) -> None:
    one = {"error_code": 15, "node_id": 9, "host": REAL[9][0], "port": REAL[9][1]}
    body = as_broker(head, {**one, "coordinators": [{**one, "key": "group"}]})
    node_rewriting.rewrite_coordinators(body, NODES)
    told = sent(head, body)
    assert told.get("coordinators", [told])[0]["error_code"] == 15


@pytest.mark.parametrize("head", versions(Api.DESCRIBE_CLUSTER))
def test_describe_cluster_names_replicas(head: Head) -> None:
    brokers = [
        {"broker_id": node, "host": host, "port": port, "rack": "zone-real"}
        for node, (host, port) in REAL.items()
    ]
    body = as_broker(head, {"cluster_id": "c", "controller_id": 7, "brokers": brokers})
    node_rewriting.rewrite_cluster(body, NODES)
    told = sent(head, body)
    assert len(told["brokers"]) == 4
    assert told["controller_id"] in {each["broker_id"] for each in told["brokers"]}


def test_versions_are_ours_that_the_broker_has_too() -> None:
    broker = {Api.FETCH: (0, 11), Api.METADATA: (0, 99), Api.SASL_HANDSHAKE: (0, 1), 19: (0, 7)}
    assert announced(broker) == {Api.FETCH: (4, 11), Api.METADATA: (4, 13)}
    assert announced({Api.FETCH: (19, 20)}) == {}
    assert announced(broker, logs_in=True) == announced(broker) | {Api.SASL_HANDSHAKE: (1, 1)}


def test_what_changes_topics_or_records_is_not_served() -> None:
    changing = (19, 20, 21, 24, 25, 26, 28, 33, 37, 43, 44, 45, 46, 47)
    assert [api for api in changing if served(api, 0) is not None] == []
    refused = {
        api for api, how in SERVED.items() if how.treatment in (Treatment.REFUSED, Treatment.LOGIN)
    }
    login = {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
    assert refused == {Api.PRODUCE, Api.INIT_PRODUCER_ID} | login
