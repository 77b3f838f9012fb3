"""Segments that a broker sends, over a real connection: the answer goes on while the body comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from api.server import serve
from kafka_formats.errors import RetryLater
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.sent_files import SentBody
from rlm.delegated.wire import COPY_DONE, COPY_FAILED, HEARTBEAT, MEDIA_TYPE, SEND_FILES
from tests.api.fakes import app_over, make_node

SIZE = 8 * 2**20
DEADLINE_S = 30.0

Take = Callable[[SentBody, asyncio.Event], Awaitable[bytes]]


@dataclass
class Calls:
    """Stands for the node's answers to the plug-in."""

    take: Take
    ended: asyncio.Future[BaseException | None] = field(default_factory=asyncio.Future)

    async def receive(self, body: SentBody, go: asyncio.Event) -> bytes:
        try:
            custom = await self.take(body, go)
        except BaseException as error:
            self.ended.set_result(error)
            raise
        self.ended.set_result(None)
        return custom


@asynccontextmanager
async def sending(calls: Calls) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a head of one byte was sent, of a body of SIZE bytes more."""
    context = replace(make_node().context, broker=cast("BrokerCalls", cast("Any", calls)))
    server = await serve(app_over(context), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = (
        "POST /v1/broker/copy-files HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {SIZE + 1}",
        "Strandline-Broker-Protocol: 1",
    )
    writer.write("\r\n".join((*head, "", "h")).encode())
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield reader, writer
    finally:
        writer.close()
        await server.close()


async def until(reader: asyncio.StreamReader, byte: bytes) -> bytes:
    """The first chunk that begins with this byte."""
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        chunk = (await reader.readexactly(size + 2))[:-2]
        if chunk[:1] != HEARTBEAT or byte == HEARTBEAT:
            assert chunk[:1] == byte
            return chunk


async def take_all(body: SentBody, go: asyncio.Event) -> bytes:
    await body.exactly(1)
    go.set()
    await body.exactly(SIZE)
    await body.end()
    return b"custom"


async def test_files_come_after_the_answer_asked_for_them() -> None:
    calls = Calls(take_all)
    async with sending(calls) as (reader, writer):
        assert b" 200 " in await reader.readuntil(b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await until(reader, HEARTBEAT)
        await until(reader, SEND_FILES)
        writer.write(bytes(SIZE))
        assert (await until(reader, COPY_DONE)).endswith(b"custom")
        assert await calls.ended is None


async def test_a_broker_that_leaves_in_the_middle_is_noticed() -> None:
    calls = Calls(take_all)
    async with sending(calls) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await until(reader, SEND_FILES)
        writer.write(bytes(SIZE // 2))
        writer.transport.abort()
        assert isinstance(await calls.ended, RetryLater)


async def test_a_broker_that_leaves_behind_the_last_byte_ends_the_copy() -> None:
    async def copies(body: SentBody, go: asyncio.Event) -> bytes:
        await take_all(body, go)
        copying.set()
        return await asyncio.Future[bytes]()

    copying = asyncio.Event()
    calls = Calls(copies)
    async with sending(calls) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await until(reader, SEND_FILES)
        writer.write(bytes(SIZE))
        await copying.wait()
        writer.transport.abort()
        assert isinstance(await calls.ended, asyncio.CancelledError)


async def test_a_node_that_can_not_take_them_says_so_before_they_come() -> None:
    async def has_no_room(body: SentBody, _go: asyncio.Event) -> bytes:
        await body.exactly(1)
        raise RetryLater("no room")

    calls = Calls(has_no_room)
    async with sending(calls) as (reader, _):
        await reader.readuntil(b"\r\n\r\n")
        assert b"no room" in await until(reader, COPY_FAILED)
