"""The tasks of a read listener: no failure ends one, and none is silent."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kafka_formats.errors import RetryLater
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client
from kafka_listener.connections.listener import ReadLimits, ReadListener
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import BROKER_IDS, Replica
from rlmm.wire.server_connection import ServerConnection
from tests.kafka_listener.connections.tier_in_memory import TierInMemory


class Turns:
    """Each task sleeps so many times, and is cancelled then."""

    def __init__(self, listener_turns: int) -> None:
        self.left = listener_turns

    async def sleep(self, _: float) -> None:
        self.left -= 1
        if self.left < 0:
            raise asyncio.CancelledError


def listener_of(turns: Turns) -> ReadListener:
    brokers = Brokers((), "", lambda: 0.0, lambda: "nonce")
    replicas = LiveReplicas(Replica(100, "here", 19_092))
    return ReadListener(replicas, "127.0.0.1", brokers, TierInMemory(), turns.sleep, ReadLimits())


async def run(listener: ReadListener, turns: Turns, number: int, times: int) -> None:
    turns.left = times
    for at, task in enumerate(listener._tasks_of()):
        if at != number:
            task.close()
            continue
        with pytest.raises(asyncio.CancelledError):
            await task


class Failing:
    """Stands for anything that has a bug, until `is_mended`."""

    is_mended = False
    calls = 0

    async def tick(self, _: object) -> None:
        self.fail()

    async def refresh(self) -> None:
        self.fail()

    def fail(self) -> None:
        self.calls += 1
        if not self.is_mended:
            raise KeyError("a bug")


@pytest.mark.parametrize("number", [1, 2], ids=["logins", "refresh"])
async def test_a_bug_is_told_once_as_long_as_it_lasts_and_ends_no_task(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    turns, bug = Turns(0), Failing()
    listener = listener_of(turns)
    cast(Any, listener).logins = bug
    cast(Any, listener.brokers).refresh = bug.refresh
    await run(listener, turns, number, 3)
    assert bug.calls == 3
    (problem,) = listener.problems()
    assert "KeyError: 'a bug'" in problem.text
    (record,) = caplog.records
    assert record.exc_info, "with its traceback"
    bug.is_mended = True
    await run(listener, turns, number, 1)
    assert listener.problems() == []


class Connection:
    """One whose `tick` has a bug, or counts."""

    def __init__(self, *, has_bug: bool = False) -> None:
        self.has_bug, self.ticks, self.is_ended = has_bug, 0, False

    def tick(self) -> None:
        self.ticks += 1
        if self.has_bug:
            raise KeyError("a bug")

    def end(self, _: str | None) -> None:
        self.is_ended = True


async def test_a_connection_that_fails_is_ended_and_the_others_have_their_turn() -> None:
    turns = Turns(0)
    listener = listener_of(turns)
    bad, good = Connection(has_bug=True), Connection()
    listener._connections = {
        cast(ServerConnection, each): cast(Client, None) for each in (bad, good)
    }
    await run(listener, turns, 0, 1)
    assert (bad.is_ended, good.is_ended, good.ticks) == (True, False, 1)
    (problem,) = listener.problems()
    assert problem.name == "connections"


def metadata(*brokers: int) -> dict[str, Any]:
    told = [{"node_id": each, "host": "b", "port": 9092} for each in brokers]
    return {"brokers": told, "topics": []}


async def test_a_broker_that_is_not_shown_is_trouble_for_as_long_as_the_brokers_tell_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(0)
    listener = listener_of(turns)
    told = [metadata(BROKER_IDS), metadata()]

    async def refresh() -> None:
        if not told:
            raise RetryLater("away")
        listener.brokers.learn(told.pop(0))

    cast(Any, listener.brokers).refresh = refresh
    await run(listener, turns, 2, 1)
    (problem,) = listener.problems()
    assert problem.name == "broker_ids"
    await run(listener, turns, 2, 1)
    await run(listener, turns, 2, 1)
    assert {each.name for each in listener.problems()} == {"broker_ids", "brokers"}, "no news"

    async def no_port(_: int | None) -> None: ...

    monkeypatch.setattr(listener, "_open_port", no_port)
    told.append(metadata(1))
    await run(listener, turns, 2, 1)
    assert listener.problems() == []
