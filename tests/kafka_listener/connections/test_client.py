"""The twins of a client: one after another where the node logs in, else one alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafka_formats.errors import RetryLater
from kafka_listener.access.login import Login
from kafka_listener.connections.client import Client


@dataclass
class Twin:
    lost: bool = False
    aborted: bool = False
    name: str = "a broker"

    def abort(self) -> None:
        self.aborted = True


@dataclass
class Opening:
    """Brokers that give a new connection each time."""

    opened: list[Twin] = field(default_factory=list)
    as_node: list[bool] = field(default_factory=list)

    async def open(self, _broker_id: int | None, *, as_node: bool) -> Twin:
        self.opened.append(Twin())
        self.as_node.append(as_node)
        return self.opened[-1]


def client_of(brokers: Opening, login: Login | None) -> Client:
    nobody = cast(Any, None)
    return Client(
        "a client", nobody, connection=nobody, brokers=cast(Any, brokers), broker_id=1, login=login
    )


async def test_a_twin_that_its_broker_ended_is_closed_before_the_next() -> None:
    brokers = Opening()
    client = client_of(brokers, None)
    await client.twin()
    brokers.opened[0].lost = True
    assert client.twin_is_lost
    await client.twin()
    await client.twin()
    assert [each.aborted for each in brokers.opened] == [True, False]
    assert brokers.as_node == [True, True]


async def test_where_the_client_logs_in_there_is_one_twin() -> None:
    brokers = Opening()
    client = client_of(brokers, Login(0.0))
    await client.twin()
    brokers.opened[0].lost = True
    with pytest.raises(RetryLater, match="has ended the connection"):
        await client.twin()
    assert brokers.as_node == [False]
