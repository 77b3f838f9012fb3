"""The brokers that are asked when any will do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kafka_client.connection import Connection, Endpoint
from kafka_formats.errors import RetryLater
from kafka_listener.connections.brokers import (
    CONNECT_DEADLINE_S,
    FAILURE_KEPT_S,
    OPEN_ANY_S,
    PAUSE_AFTER_SILENCE_S,
    Brokers,
)


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


class Silent:
    """Brokers that take the whole deadline to fail, but for those that live."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.now = 100.0
        self.tried: list[str] = []
        self.alive: set[str] = set()
        monkeypatch.setattr(Connection, "open", self._open)
        self.brokers = Brokers((), "", lambda: self.now, lambda: "nonce")
        self.brokers.known = {each: (f"broker-{each}", 9092) for each in range(count)}

    async def _open(self, endpoint: Endpoint, **_options: object) -> Connection:
        self.tried.append(endpoint.host)
        if endpoint.host in self.alive:
            return cast(Connection, SimpleNamespace(api_versions={}, abort=lambda: None))
        self.now += CONNECT_DEADLINE_S
        raise RetryLater("it does not answer")


async def test_a_client_does_not_wait_for_each_of_many_brokers_that_are_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gives up its Metadata after 30 s; the last known one answers it."""
    silent = Silent(monkeypatch, 20)
    assert not await silent.brokers.answers(None)
    assert silent.now - 100.0 <= OPEN_ANY_S + CONNECT_DEADLINE_S


async def test_each_broker_is_tried_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent(monkeypatch, 20)
    silent.alive = {"broker-17"}
    while not await silent.brokers.answers(None):
        assert silent.now < 200.0
    silent.tried.clear()
    assert await silent.brokers.answers(None)
    assert silent.tried == ["broker-17"], "it is the first one from now on"


async def test_a_failure_of_long_ago_does_not_put_a_broker_behind_those_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = Silent(monkeypatch, 2)
    assert not await silent.brokers.answers(0)
    silent.alive = {"broker-0"}
    silent.brokers.alive = frozenset({0})
    silent.now += PAUSE_AFTER_SILENCE_S + FAILURE_KEPT_S
    silent.tried.clear()
    assert await silent.brokers.answers(None)
    assert silent.tried == ["broker-0"]


async def test_a_broker_that_does_not_even_refuse_is_left_alone_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each read of the tier would else wait for it, all the time."""
    silent = Silent(monkeypatch, 1)
    waited = 0.0
    for _ in range(100):
        before = silent.now
        assert not await silent.brokers.answers(0)
        waited += silent.now - before
        silent.now += 0.1
    assert waited <= 0.5 * (silent.now - 100.0)
    silent.now += PAUSE_AFTER_SILENCE_S
    silent.alive = {"broker-0"}
    assert await silent.brokers.answers(0)
