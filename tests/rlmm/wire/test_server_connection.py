"""One connection of the listener: answers in the order of the requests, together where they can."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rlmm.wire.frames import SIZE
from rlmm.wire.sasl_server import SaslServer
from rlmm.wire.server_connection import Caller, ListenerLimits, ServerConnection


class Transport(asyncio.Transport):
    """Remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class Answering:
    """Each request is answered by itself, once its future is done."""

    limits = ListenerLimits()

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[bytes]] = []

    def begin(self, _caller: Caller, _frame: bytes) -> Coroutine[Any, Any, bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)

        async def answered() -> bytes:
            return await answer

        return answered()

    def accepted(self, _connection: ServerConnection) -> Caller | None:
        return Caller("a peer", SaslServer(None, lambda: "n", plain_allowed=True), is_peer=True)

    def ended(self, _connection: ServerConnection) -> None: ...

    def refused(self, who: str, why: str) -> None:
        pytest.fail(f"{who} {why}")


class Connected:
    """A connection over which so many requests came."""

    def __init__(self, requests: int) -> None:
        self.answering = Answering()
        self.transport = Transport()
        self.connection = ServerConnection(self.answering)
        self.connection.connection_made(self.transport)
        self.connection.data_received((SIZE.pack(8) + bytes(8)) * requests)

    async def answer(self, *numbers: int) -> list[bytes]:
        """Answer these, in one turn of the loop; what was written by it."""
        before = len(self.transport.written)
        for number in numbers:
            self.answering.waiting[number].set_result(b"%d" % number)
        for _ in range(4):
            await asyncio.sleep(0)
        return self.transport.written[before:]


async def connected(requests: int) -> Connected:
    found = Connected(requests)
    await asyncio.sleep(0)
    return found


async def test_answers_of_one_turn_go_out_together_in_the_order_of_the_requests() -> None:
    client = await connected(4)
    assert await client.answer(2, 0, 1) == [b"012"]
    assert await client.answer(3) == [b"3"]


async def test_an_answer_waits_for_those_before_it() -> None:
    client = await connected(3)
    assert await client.answer(2) == []
    assert await client.answer(0) == [b"0"]
    assert await client.answer(1) == [b"12"]


async def test_a_connection_that_was_lost_meanwhile_is_written_nothing() -> None:
    client = await connected(2)
    client.answering.waiting[0].set_result(b"0")
    await asyncio.sleep(0)
    client.connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.transport.written == []
