"""The brokers that are asked when any will do."""

from __future__ import annotations

import pytest

from kafka_client.connection import Connection, Endpoint
from kafka_formats.errors import RetryLater
from kafka_listener.connections.brokers import Brokers


async def test_a_broker_that_is_gone_is_asked_behind_those_that_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may not even refuse a connection, and each client would wait for that."""
    tried: list[str] = []

    async def refuse(endpoint: Endpoint, **_options: object) -> Connection:
        tried.append(endpoint.name)
        raise RetryLater("it does not answer")

    monkeypatch.setattr(Connection, "open", refuse)
    brokers = Brokers((("first", 9092),), "", lambda: 0.0, lambda: "nonce")
    nodes = [{"node_id": each, "host": f"broker-{each}", "port": 9092} for each in (1, 2, 3)]
    brokers.learn({"brokers": nodes, "topics": []})
    brokers.learn({"brokers": nodes[1:], "topics": []})
    brokers.learn_some({4: ("broker-4", 9092)})
    with pytest.raises(RetryLater):
        await brokers.open(None)
    names = ["broker-2", "broker-3", "broker-1", "broker-4", "first"]
    assert tried == [f"{each}:9092" for each in names]
