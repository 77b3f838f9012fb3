"""The server under clients that mean no good: nothing grows without a bound, nobody else suffers,
and what a client leaves behind is freed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.http.api_limits import ApiLimits
from api.server import ApiServer, TlsFiles
from tests.api.fakes import BASE, FakeNode, FakeStream, segment_uuid
from tests.api.test_server import (
    QUICK,
    Raw,
    connection,
    get,
    problem_in,
    running,
    write_certificate,
)

RECORDS = f"{BASE}/records?offset=0"
LIMITS = ApiLimits(shutdown_deadline_s=1, header_bytes_max=4_000, pipelined_requests_max=5)
STALLED = replace(
    LIMITS, chunk_deadline_s=0.1, idle_deadline_s=0.1, header_deadline_s=60, connections_max=10
)


async def until(what: Callable[[], bool]) -> None:
    """Wait for something that has to happen; the test's own deadline ends a wait in vain."""
    while not what():
        await asyncio.sleep(0.001)


@asynccontextmanager
async def deaf_connection(server: ApiServer) -> AsyncIterator[Raw]:
    """A client that takes as good as nothing: small buffers at both ends, and it never reads."""
    server._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


async def test_requests_that_wait_in_a_row_have_a_bound() -> None:
    async with running(LIMITS) as (_, server), connection(server) as raw:
        await raw.send(get() * 2_000)
        answers = (await raw.rest()).split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200"] * 6 + [b"400"]
        assert problem_in(b"HTTP/1.1 " + answers[-1]) == (400, "invalid_request")


async def test_requests_within_the_bound_are_all_answered() -> None:
    async with running(LIMITS) as (_, server), connection(server) as raw:
        for _ in range(3):
            await raw.send(get() * 6)
            for _ in range(6):
                await raw.reader.readuntil(b"}")
        assert server.connections == 1


async def test_a_client_that_goes_away_with_requests_in_a_row_stops_the_read() -> None:
    async with running(LIMITS) as (node, server):
        node.rlm.stream = FakeStream([b"x" * 1000], hangs=True)
        async with connection(server) as raw:
            await raw.send(get(RECORDS) + get() + get(RECORDS))
            await raw.reader.readuntil(b"x" * 1000)
        await until(lambda: node.rlm.stream.closed)
        await until(lambda: not server.connections)
        assert node.rlm.stream.asked == 1


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
async def test_an_answer_that_is_not_taken_does_not_keep_its_connection(more: bytes) -> None:
    async with running(STALLED) as (node, server), deaf_connection(server) as raw:
        request = get(f"{BASE}/segments/{segment_uuid(0)}/log")
        node.manager.segments[0] = replace(node.manager.segments[0], size_bytes=60_000)
        node.rlm.stream = FakeStream([b"x" * 60_000])
        await raw.send(request[:-2] + more + b"\r\n")
        await until(lambda: node.rlm.stream.closed)
        assert server.connections == 1
        await until(lambda: not server.connections)


async def test_a_refusal_that_is_not_taken_does_not_keep_its_connection() -> None:
    async with running(STALLED) as (_, server), deaf_connection(server) as raw:
        await until(lambda: server.connections == 1)
        await raw.send(get("/v1/openapi.json") + b"nonsense\r\n\r\n")
        await until(lambda: not server.connections)
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]  # a socket's has it
        assert b"invalid_request" not in await raw.rest()


@pytest.mark.parametrize("line", [b"X: y\r\n", b"x" * 100])
async def test_trailers_without_end_are_cut_off(line: bytes) -> None:
    head = (
        b"PUT /v1/topics/payments/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    )
    limits = replace(LIMITS, body_deadline_s=60)
    async with running(limits) as (_, server), connection(server) as raw:
        await raw.send(head)
        with suppress(ConnectionError):
            for _ in range(20_000_000 // (100 * len(line))):
                await raw.send(line * 100)
        async with asyncio.timeout(5):  # much earlier than the body's deadline
            assert await raw.rest() == b""


async def test_a_body_in_small_chunks_is_taken() -> None:
    body = b'{"retention_ms":1,"retention_bytes":null,"copy_paused":false,"delete_paused":false}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body + b" " * 5_000)
    head = (
        b"PUT /v1/topics/payments/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        b"application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    async with running(LIMITS) as (_, server), connection(server) as raw:
        await raw.send(head + chunks + b"0\r\n\r\n")
        assert (await raw.rest()).startswith(b"HTTP/1.1 200 ")


async def trickled(raw: Raw, byte: bytes) -> tuple[int, str]:
    """(status, kind) of what comes while the same byte is sent again and again."""
    answer = asyncio.create_task(raw.reader.readuntil(b"}"))
    with suppress(ConnectionError):
        while not answer.done():
            await raw.send(byte)
            await asyncio.sleep(0.001)
    return problem_in(await answer)


async def test_headers_that_trickle_in_have_one_deadline_for_all_of_them() -> None:
    limits = replace(LIMITS, header_deadline_s=0.2, header_bytes_max=1_000_000)
    async with running(limits) as (_, server), connection(server) as raw:
        await raw.send(b"GET /healthz HTTP/1.1\r\nX: ")
        assert await trickled(raw, b"x") == (408, "request_timeout")


async def test_a_body_that_trickles_in_has_one_deadline_and_nothing_happened() -> None:
    limits = replace(LIMITS, body_deadline_s=60, answer_deadline_s=0.2)
    async with running(limits) as (node, server), connection(server) as raw:
        await raw.send(
            b"PUT /v1/topics/payments/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            b"application/json\r\nContent-Length: 900000\r\nConnection: close\r\n\r\n"
        )
        assert await trickled(raw, b" ") == (408, "request_timeout")
        assert node.manager.policies == {}


@pytest.mark.parametrize("part", [b"", b"\x16\x03\x01"])
async def test_a_handshake_that_does_not_go_on_ends(part: bytes, tmp_path: Path) -> None:
    files = write_certificate(tmp_path, "node")
    async with (
        running(QUICK, TlsFiles(files.certificate, files.key)) as (_, server),
        connection(server) as raw,
    ):
        await raw.send(part)
        assert not (await raw.rest()).startswith(b"HTTP")


async def test_slow_readers_find_an_end_before_others_do() -> None:
    limits = replace(LIMITS, streams_parallel_max=2)
    async with running(limits) as (node, server):
        node.rlm.stream = FakeStream([b"first"], hangs=True)
        async with AsyncExitStack() as readers:
            for _ in range(2):
                raw = await readers.enter_async_context(connection(server))
                await raw.send(get(RECORDS))
                await raw.reader.readuntil(b"first")
            url = f"http://127.0.0.1:{server.port}"
            async with httpx.AsyncClient(base_url=url) as client:
                refused = await client.get(RECORDS)
                assert (refused.status_code, refused.json()["kind"]) == (503, "retry_later")
                assert "Retry-After" in refused.headers
                assert (await client.get("/v1/topics")).status_code == 200
                assert (await client.head(RECORDS)).status_code == 200
        await until(lambda: not node.context.streams.open)
        node.rlm.stream = FakeStream([b"again"])
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get(RECORDS)).content == b"again"
        assert node.context.streams.open == 0


async def _opened(server: ApiServer, count: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", server.port))
        clients.append(client)
    return clients


async def test_thousands_of_idle_connections_are_bounded_and_the_rest_is_told() -> None:
    limits = replace(LIMITS, connections_max=300, header_deadline_s=60)
    loop = asyncio.get_running_loop()
    async with running(limits) as (_, server):
        clients = await _opened(server, 2_000)
        try:
            await until(lambda: server.connections == 300)
            for client in clients[300:]:
                assert problem_in(await loop.sock_recv(client, 4_096)) == (503, "retry_later")
            await loop.sock_sendall(clients[0], get())
            assert (await loop.sock_recv(clients[0], 4_096)).startswith(b"HTTP/1.1 200 ")
            clients.pop(1).close()
            await until(lambda: server.connections == 299)
            async with connection(server) as raw:
                await raw.send(get())
                assert (await raw.reader.readline()).split()[1] == b"200"
        finally:
            for client in clients:
                client.close()
        await until(lambda: not server.connections)


async def test_half_sent_headers_hold_a_connection_until_their_deadline_and_no_longer() -> None:
    limits = replace(LIMITS, connections_max=500, header_deadline_s=1)
    loop = asyncio.get_running_loop()
    async with running(limits) as (_, server):
        clients = await _opened(server, 500)
        try:
            for client in clients:
                await loop.sock_sendall(client, b"GET /healthz HTTP/1.1\r\nHost: local")
            for client in clients:
                assert problem_in(await loop.sock_recv(client, 4_096)) == (408, "request_timeout")
            await until(lambda: not server.connections)
            async with connection(server) as raw:
                await raw.send(get())
                assert (await raw.reader.readline()).split()[1] == b"200"
        finally:
            for client in clients:
                client.close()


async def _stream_to_a_deaf_client(node: FakeNode, raw: Raw) -> None:
    node.rlm.stream = FakeStream([b"x" * 100_000] * 1_000)
    await raw.send(get(RECORDS))
    await until(lambda: node.rlm.stream.asked > 1)


async def test_the_end_does_not_wait_for_clients_that_take_nothing() -> None:
    tasks = asyncio.all_tasks()
    async with running(LIMITS) as (node, server), deaf_connection(server) as raw:
        await _stream_to_a_deaf_client(node, raw)
        await server.close()
        assert node.rlm.stream.closed
        assert not server.connections or server._server.server_state.tasks == set()
        assert node.context.streams.open == 0
    await until(lambda: asyncio.all_tasks() == tasks)


async def test_what_is_read_ahead_for_a_client_that_takes_nothing_is_bounded() -> None:
    async with running(LIMITS) as (node, server), deaf_connection(server) as raw:
        await _stream_to_a_deaf_client(node, raw)
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert node.rlm.stream.asked <= 5
