"""Servers that do not go on: no wait is longer than `read_timeout_s`, and then comes a try."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from rsm_backends.s3_checksums import encoded
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.rsm_backends.stores import opened
from tests.rsm_backends.test_blocking_reads import blocking

SILENCE_S = 1.0
"""Long for a machine that is at work; a test waits for it once or twice."""
LARGE = bytes(16 * 1024 * 1024)
"""More than a connection's buffers take."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def stored(head: bytes) -> bytes:
    """A store's answer, which tells the checksum that it was sent."""
    told = re.search(rb"(?i)x-amz-checksum-crc32c: [^\r]+\r\n", head)
    assert told is not None
    return b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n%s\r\n' % told[0]


@asynccontextmanager
async def server(*talks: Talk) -> AsyncIterator[StoreConfig]:
    """Each connection has its own talk; the config of a store there."""
    left, talking = list(talks), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.append(asyncio.current_task())
        try:
            await left.pop(0)(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield StoreConfig(
            name="main", kind="s3", bucket="b", endpoint_url=f"http://127.0.0.1:{port}",
            addressing_style="path", access_key_id="k", secret_access_key="s", attempts_max=2,
            read_timeout_s=SILENCE_S,
        )  # fmt: skip
        assert left == [], "a connection was not made"
    finally:
        for task in talking:
            if task is not None:
                task.cancel()
        listener.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = (
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    length = next(lengths, 0)
    await reader.readexactly(length)
    return head


async def forever(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("data", [b"data", LARGE])
async def test_a_body_is_sent_without_asking_for_leave(data: bytes) -> None:
    """The server never says `100 Continue`; many proxies do not."""
    heads = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            heads.append(await read_request(reader))
            writer.write(stored(heads[-1]))

    async with server(take) as config, opened(config) as store:
        await store.put("k", data, crc32c=crc32c(data))
        await store.put_part("k", "u", 1, data, crc32c=crc32c(data))
    assert len(heads) == 2
    assert not any(b"expect" in head.lower() for head in heads)


async def test_a_server_that_takes_no_body_is_tried_again() -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(stored(await read_request(reader)))

    async with server(forever, take) as config, opened(config) as store:
        info = await store.put("k", LARGE, crc32c=crc32c(LARGE))
    assert info.size == len(LARGE)


async def test_a_server_that_never_answers_is_tried_again_and_then_told() -> None:
    async with server(forever, forever) as config, opened(config) as store:
        with pytest.raises(RetryLater, match="connection failed"):
            await store.head("k")


async def test_a_server_that_stops_within_a_body_is_tried_again_from_there() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 6\r\n\r\nabc')
        await forever()

    async def rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"bytes=3-" in head
        told = b"Content-Length: 3\r\nContent-Range: bytes 3-5/6\r\n\r\ndef"
        writer.write(b"HTTP/1.1 206 OK\r\n" + told)

    async with server(half, rest) as config, opened(config) as store:
        assert await read_all(store, "k") == b"abcdef"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_store_on_this_machine_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_request(reader)
        assert head.startswith(b"PUT /b/k ")
        writer.write(stored(head))

    async with server(take) as config:
        config = replace(config, endpoint_url=str(config.endpoint_url).replace("127.0.0.1", host))
        async with opened(config) as store:
            await store.put("k", b"data", crc32c=crc32c(b"data"))
        with (
            blocking(replace(config, endpoint_url=f"http://{host}:1")) as reads,
            pytest.raises(RetryLater, match=f"http://{host}:1"),
        ):
            reads.open("k").read_into(memoryview(bytearray(1)), 0)


@pytest.mark.parametrize("replaces", [False, True])
async def test_a_connection_that_ends_after_a_write_is_a_lost_answer(replaces: bool) -> None:
    """The HTTP library would send the PUT again by itself, and the store refuse what it has."""

    def described(data: bytes, etag: bytes) -> bytes:
        checksum = encoded(crc32c(data)).encode()
        return (
            b"HTTP/1.1 200 OK\r\nETag: %b\r\nContent-Length: %d\r\n"
            b"x-amz-checksum-crc32c: %b\r\n\r\n" % (etag, len(data), checksum)
        )

    requests = []

    async def answer(reader: asyncio.StreamReader) -> bytes | None:
        requests.append((await read_request(reader)).partition(b" ")[0])
        stored = requests.count(b"PUT")
        if requests[-1] == b"HEAD":
            return described(b"data" if stored else b"before", b'"%d"' % stored)
        if stored == 1:
            return None  # it is stored, and nobody is told
        body = b"<Error><Code>PreconditionFailed</Code></Error>"
        return b"HTTP/1.1 412 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while (answered := await answer(reader)) is not None:
                writer.write(answered)

    async with server(take, take) as config, opened(config) as store:
        if replaces:
            written = store.replace("k", b"data", crc32c=crc32c(b"data"), etag='"0"')
        else:
            written = store.put("k", b"data", crc32c=crc32c(b"data"), create_only=True)
        assert (await written).size == 4
