"""A broker that joined: its node's port is open before a client is told of the node."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_listener.protocol.apis import Api
from kafka_listener.virtual_nodes import port_of
from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.scripted_broker import ScriptedBroker
from tests.kafka_listener.connections.test_listener import ask, connected
from tests.kafka_listener.connections.tier_in_memory import TierInMemory

QUESTIONS: dict[Api, tuple[int, dict[str, Any]]] = {
    Api.METADATA: (12, {"topics": None}),
    Api.DESCRIBE_CLUSTER: (0, {}),
    Api.FIND_COORDINATOR: (4, {"key_type": 0, "coordinator_keys": ["readers"]}),
}


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        yield scripted


def nodes_in(body: dict[str, Any]) -> list[int]:
    """The ports of the nodes that an answer names."""
    return [each["port"] for each in body.get("brokers") or body["coordinators"]]


@pytest.mark.parametrize("is_known", [False, True], ids=["new to the node", "known to the node"])
@pytest.mark.parametrize("api", QUESTIONS, ids=lambda api: api.name)
def test_the_port_of_a_new_broker_is_open_once_a_client_is_told(
    broker: ScriptedBroker, api: Api, *, is_known: bool
) -> None:
    """`is_known`: a question of the node's own named the broker first, as those of scans do."""
    version, asked = QUESTIONS[api]
    with Listening(broker.address, TierInMemory(), brokers=2) as replica:
        broker.others = (2,)
        if is_known:
            replica.run(replica.listener.brokers.refresh)
        with connected(replica) as client:
            ports = nodes_in(ask(client, api, version, asked))
        assert port_of(replica.port, 2) in ports
        for port in ports:
            socket.create_connection(("127.0.0.1", port), timeout=20).close()


def test_a_port_that_is_taken_is_told_and_not_tried_by_every_answer(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    version, asked = QUESTIONS[Api.METADATA]
    with Listening(broker.address, TierInMemory(), brokers=3) as replica:
        at = "127.0.0.1", port_of(replica.port, 2)
        with socket.create_server(at), connected(replica) as client:
            broker.others = (2,)
            ask(client, Api.METADATA, version, asked)
            (problem,) = replica.listener.problems()
            assert problem.name == "port_2"
        with connected(replica) as client:
            ask(client, Api.METADATA, version, asked)
            assert replica.listener.problems(), "it is tried with the next look at all brokers"
            broker.others = (2, 3)
            ask(client, Api.METADATA, version, asked)
            assert not replica.listener.problems(), "and with the next new broker"
