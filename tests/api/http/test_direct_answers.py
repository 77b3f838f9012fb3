"""Downloads that a worker sends to the client itself, on a connection that the server lends it."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx

from api.http.direct_answer import DIRECT_BYTES_MIN
from rlm.data_plane.read_request import TieredSegment
from rlm.format.object_keys import segment_keys
from tests.api.test_over_workers import API_LIMITS, LOG, MIB, served, settled
from tests.api.test_pressure import deaf_connection, until
from tests.api.test_server import Raw, connection, get, write_certificate


def ranged(start: int, end: int) -> bytes:
    return (
        f"GET {LOG} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={start}-{end - 1}\r\n\r\n".encode()
    )


async def answer(raw: Raw) -> tuple[int, bytes]:
    """Status and body of the next answer on a connection."""
    head = await raw.reader.readuntil(b"\r\n\r\n")
    (length,) = (
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    return int(head.split()[1]), await raw.reader.readexactly(length)


async def broken_body(raw: Raw) -> bytes:
    """Bytes of a body until the connection ends."""
    await raw.reader.readuntil(b"\r\n\r\n")
    return await raw.rest()


async def test_a_connection_is_lent_again_and_again_and_used_in_between(tmp_path: Path) -> None:
    async with served(tmp_path) as node, connection(node.server) as raw:
        for start in (0, 1_000_001, 7):
            await raw.send(ranged(start, start + 3 * MIB))
            assert await answer(raw) == (206, node.log[start : start + 3 * MIB])
            await raw.send(get())
            assert (await answer(raw))[0] == 200
        assert node.remote_log.held == [0, 1_000_001, 7]
        assert node.server.connections == 1


async def test_requests_that_wait_behind_a_lent_answer_come_after_it(tmp_path: Path) -> None:
    async with served(tmp_path) as node, connection(node.server) as raw:
        await raw.send(ranged(0, 8 * MIB) + get() + ranged(5, 2 * MIB) + ranged(0, 10) + get())
        assert await answer(raw) == (206, node.log[: 8 * MIB])
        assert (await answer(raw))[1] == b'{"status":"alive"}'
        assert await answer(raw) == (206, node.log[5 : 2 * MIB])
        assert await answer(raw) == (206, node.log[:10])
        assert (await answer(raw))[1] == b'{"status":"alive"}'
        assert node.remote_log.held == [0, 5]


async def test_short_answers_and_heads_are_not_lent(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.server.port}") as client:
            head = await client.head(LOG)
            assert head.headers["content-length"] == str(len(node.log))
            short = await client.get(LOG, headers={"Range": f"bytes=3-{DIRECT_BYTES_MIN + 1}"})
            assert short.content == node.log[3 : DIRECT_BYTES_MIN + 2]
        assert node.remote_log.held == []
        assert node.remote_log.opened == [0, 3]


async def test_nothing_is_lent_over_tls(tmp_path: Path) -> None:
    tls = write_certificate(tmp_path, "localhost")
    async with served(tmp_path, tls=tls) as node:
        context = ssl.create_default_context(cafile=tls.certificate)
        url = f"https://localhost:{node.server.port}"
        async with httpx.AsyncClient(base_url=url, verify=context) as client:
            assert (await client.get(LOG)).content == node.log
        assert node.remote_log.held == []


async def test_the_client_of_a_killed_worker_sees_a_broken_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        pid = node.pool.pids[0]
        async with connection(node.server) as raw:
            await raw.send(get(LOG))
            await raw.reader.readuntil(b"\r\n\r\n")
            os.kill(pid, signal.SIGKILL)
            got = await raw.rest()
            assert got == node.log[: len(got)]
            assert len(got) < len(node.log)
        await until(lambda: bool(node.pool.pids) and node.pool.pids[0] != pid)
        async with connection(node.server) as raw:
            await raw.send(ranged(0, MIB))
            assert await answer(raw) == (206, node.log[:MIB])


async def test_damage_in_the_store_breaks_the_answer_off_before_it(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        segment = node.remote_log.segment
        assert isinstance(segment, TieredSegment)
        path = tmp_path / "tier" / segment_keys(segment.prefix, segment.segment_id, 0).log
        path.write_bytes(node.log[: 9 * MIB] + b"\0" * 64 + node.log[9 * MIB + 64 :])
        async with connection(node.server) as raw:
            await raw.send(get(LOG))
            got = await broken_body(raw)
            assert got == node.log[: len(got)]
            assert 0 < len(got) <= 9 * MIB
        await until(lambda: not node.jobs)


async def test_clients_that_stop_taking_are_broken_off(tmp_path: Path) -> None:
    limits = replace(API_LIMITS, chunk_deadline_s=0.1)
    async with served(tmp_path, limits) as node, AsyncExitStack() as clients:
        files, tasks = node.open_files(), asyncio.all_tasks()
        deaf = [await clients.enter_async_context(deaf_connection(node.server)) for _ in range(4)]
        for raw in deaf:
            await raw.send(get(LOG))
        await until(lambda: len(node.remote_log.held) == len(deaf))
        await until(lambda: not node.jobs and not node.server.connections)
        for raw in deaf:
            raw.writer.transport.resume_reading()  # type: ignore[attr-defined]  # a socket's has it
            assert len(await raw.rest()) < len(node.log)
        await clients.aclose()
        await settled(node, files + 1, lambda: asyncio.all_tasks() <= tasks)  # one of the store
        assert node.remote_log.held == [0] * len(deaf), "nobody was answered in another way"


async def test_a_server_that_closes_breaks_lent_connections_off(tmp_path: Path) -> None:
    limits = replace(API_LIMITS, shutdown_deadline_s=0.1)
    async with served(tmp_path, limits) as node, connection(node.server) as raw:
        await raw.send(get(LOG))
        await raw.reader.readuntil(b"\r\n\r\n")
        await node.server.close()
        assert len(await raw.rest()) < len(node.log)
        await until(lambda: not node.jobs)
