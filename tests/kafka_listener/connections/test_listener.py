"""The listener at its first port, without a broker: what it answers itself, and what it refuses."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from kafka_listener.connections.listener import ReadLimits
from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.protocol.codec import Head, decode_response, encode_request
from kafka_listener.protocol.error_codes import ErrorCode
from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.scripted_broker import ScriptedBroker
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.ports import free_ports

LIMITS = ReadLimits(connections_max=3, request_bytes_max=2_000)


@pytest.fixture(scope="module")
def replica() -> Iterator[Listening]:
    """Nobody listens where its broker should be."""
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with Listening(nobody, TierInMemory(), LIMITS) as listening:
        yield listening


@pytest.fixture
def client(replica: Listening) -> Iterator[socket.socket]:
    with connected(replica) as connection:
        yield connection


def connected(replica: Listening) -> socket.socket:
    return socket.create_connection(("127.0.0.1", replica.port), timeout=20)


def answered(client: socket.socket, frame: bytes) -> bytes:
    """The answer without its size; b"" if the connection ended instead."""
    client.sendall(frame)
    with client.makefile("rb") as stream:
        try:
            size = stream.read(4)
            return stream.read(struct.unpack(">i", size)[0]) if size else b""
        except ConnectionResetError:
            return b""


def ask(client: socket.socket, api: Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
    head = Head(api, version, 9)
    return decode_response(head, answered(client, encode_request(head, "a client", body)))


def test_without_a_broker_trouble_is_told(replica: Listening) -> None:
    (problem,) = replica.listener.problems()
    assert (problem.area.value, problem.name) == ("read", "brokers")


def test_logging_in_is_refused_with_the_error_that_ends_a_client(client: socket.socket) -> None:
    body = ask(client, Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert body == {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": []}


def test_versions_that_are_too_new_are_answered_in_the_oldest(client: socket.socket) -> None:
    head = Head(Api.API_VERSIONS, 4, 9)
    frame = bytearray(encode_request(head, "a client", {}))
    struct.pack_into(">h", frame, 6, 99)
    body = decode_response(Head(Api.API_VERSIONS, 0, 9), answered(client, bytes(frame)))
    assert body["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    (one,) = body["api_keys"]
    assert (one["api_key"], one["min_version"], one["max_version"]) == (18, 0, 4)


def test_a_coordinator_of_a_transaction_is_refused_and_one_of_a_group_waited_for(
    client: socket.socket,
) -> None:
    for key_type, error in (
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ):
        asked = {"key_type": key_type, "coordinator_keys": ["key"]}
        (found,) = ask(client, Api.FIND_COORDINATOR, 4, asked)["coordinators"]
        assert (found["error_code"], found["node_id"], found["key"]) == (error, -1, "key")
        assert "127.0.0.1" not in found["error_message"], "no broker's address is told"


def test_the_ends_of_logs_are_asked_for_again(client: socket.socket) -> None:
    partitions = [{"partition_index": 0, "timestamp": -1}]
    asked = {"replica_id": -1, "topics": [{"name": "orders", "partitions": partitions}]}
    (topic,) = ask(client, Api.LIST_OFFSETS, 7, asked)["topics"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE


def test_topics_by_id_are_refused_below_version_12_as_a_broker_does() -> None:
    """An answer of these versions has no room for a name that is not known: while the broker can be
    asked, and while the listener answers in its place.
    """
    by_id: list[dict[str, Any]] = [
        {"name": None, "topic_id": b"i" * 16},
        {"name": None},
        {"name": "salaries", "topic_id": b"i" * 16},
    ]
    with ScriptedBroker() as broker, Listening(broker.address, TierInMemory()) as replica:
        for is_away in (False, True):
            with connected(replica) as one:
                for version, topic in product((10, 11), by_id):
                    asked = {"topics": [topic, {"name": "orders"}]}
                    body = ask(one, Api.METADATA, version, asked)
                    assert (body["brokers"], body["controller_id"]) == ([], -1)
                    first, second = body["topics"]
                    assert (first["name"], second["name"]) == (topic["name"] or "", "orders")
                    assert first["topic_id"] == topic.get("topic_id", bytes(16))
                    for each in (first, second):
                        assert each["error_code"] == ErrorCode.INVALID_REQUEST
                    body = ask(one, Api.METADATA, version, {"topics": None})
                    assert (body["cluster_id"], len(body["brokers"])) == ("c", 1)
            if not is_away:
                broker.stop()


@pytest.mark.parametrize(
    ("api", "asked"),
    [
        (Api.FETCH, {"topics": [{"topic_id": b"i" * 16, "partitions": [{"partition": 0}]}]}),
        (Api.LIST_OFFSETS, {"topics": [{"name": "t", "partitions": [{"timestamp": -1}]}]}),
        (Api.OFFSET_FOR_LEADER_EPOCH, {"topics": [{"topic": "t", "partitions": [{}]}]}),
        (Api.METADATA, {"topics": []}),
    ],
)
def test_a_version_that_its_broker_has_no_more_ends_the_connection(
    api: Api, asked: dict[str, Any]
) -> None:
    """Brokers are rolled back while the client's connection lasts: told to ask again, it would do
    so for ever in a version that its broker does not take. A new connection asks for the versions.
    """
    newest = SERVED[api].high
    with ScriptedBroker() as broker, Listening(broker.address, TierInMemory()) as replica:
        with connected(replica) as client:
            assert versions(client)[api] == newest
            broker.highest[api] = newest - 1
            broker.drop()
            assert answered(client, encode_request(Head(api, newest, 9), "a client", asked)) == b""
        with connected(replica) as client:
            assert versions(client)[api] == newest - 1


def versions(client: socket.socket) -> dict[int, int]:
    """The highest of each API."""
    body = ask(client, Api.API_VERSIONS, 4, {})
    return {each["api_key"]: each["max_version"] for each in body["api_keys"]}


@pytest.mark.parametrize(
    "frame",
    [
        encode_request(Head(Api.FETCH, 11, 1), "a client", {})[:-1] + b"\xff" * 40,
        struct.pack(">ihhi", 8, 19, 7, 1),
        struct.pack(">ihhi", 8, Api.FETCH, 99, 1),
        struct.pack(">i", 2_001),
        struct.pack(">i", -1),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ihhi", 8, Api.HEARTBEAT, 0, 1),
        encode_request(Head(Api.API_VERSIONS, 3, 1), "a client", {}),
    ],
    ids=[
        "garbage", "create topics", "unknown version", "too large", "negative", "HTTP", "relayed",
        "versions",
    ],
)  # fmt: skip
def test_what_cannot_be_answered_ends_the_connection(client: socket.socket, frame: bytes) -> None:
    assert answered(client, frame) == b""


def test_who_sends_too_large_a_request_is_told_of_with_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A SyncGroup has the assignments of all members of its group."""
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with Listening(nobody, TierInMemory(), LIMITS) as replica, connected(replica) as client:
        assert answered(client, struct.pack(">i", 2_001)) == b""
    assert "announced a request of 2001 bytes, and 8 to 2000 are accepted" in caplog.text
    assert "read.request_bytes_max may be too low" in caplog.text


def test_a_connection_too_many_is_ended_and_the_others_are_kept(replica: Listening) -> None:
    kept = [connected(replica) for _ in range(LIMITS.connections_max)]
    try:
        for one in kept:
            assert ask(one, Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        with connected(replica) as another:
            assert answered(another, struct.pack(">ihhi", 8, Api.SASL_HANDSHAKE, 1, 1)) == b""
        assert ask(kept[0], Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    finally:
        for one in kept:
            one.close()
