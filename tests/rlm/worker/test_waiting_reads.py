"""Real worker processes that send what they read to a client's own connection."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, InvalidRequest, RetryLater
from rlm.data_plane.read_request import (
    ClientEnd,
    LogRequest,
    SendRules,
    Sent,
    TieredSegment,
)
from rlm.format.object_keys import segment_keys
from rlm.worker.pool import WorkerPool
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.real_workers import copied, restarted

RULES = SendRules(grace_s=60, bytes_per_s_min=1, store_deadline_s=60)


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """A segment of about 8 MB: more than sockets hold."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(8):
        replica.append(10, value_bytes=100_000)
    replica.roll()
    replica.append(1)
    return replica


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The connection as the server has it, and the client's end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def stored(pool: WorkerPool, replica: ReplicaWriter) -> tuple[TieredSegment, bytes]:
    segment = (await copied(pool, replica)).pieces[0].segment
    assert isinstance(segment, TieredSegment)
    return segment, replica.path(0, ".log").read_bytes()


async def rest_of(client: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    found = bytearray()
    while piece := await loop.sock_recv(client, 1 << 20):
        found += piece
    return bytes(found)


async def idle(pool: WorkerPool) -> None:
    """The worker has confirmed that it does nothing more."""
    while any(worker.jobs for worker in pool._workers.values()):
        await asyncio.sleep(0.001)


def worker_files(pool: WorkerPool) -> int:
    return len(os.listdir(f"/proc/{pool.pids[0]}/fd"))


async def test_the_client_gets_the_very_bytes_and_the_connection_comes_back(
    pool: WorkerPool, replica: ReplicaWriter, pair: tuple[socket.socket, socket.socket]
) -> None:
    segment, log = await stored(pool, replica)
    reading = asyncio.create_task(rest_of(pair[1]))
    pair[0].send(b"head")
    async with pool.waiting_log(LogRequest(segment, 100, 7_000_000)) as held:
        sent = await held.send_to(pair[0], RULES)
    assert sent == Sent(ClientEnd.TOOK_ALL, 7_000_000 - 100)
    files = worker_files(pool)
    async with pool.waiting_log(LogRequest(segment, 0, 10)) as held:
        assert await held.send_to(pair[0], RULES) == Sent(ClientEnd.TOOK_ALL, 10)
    assert worker_files(pool) == files  # it has let go before it says so
    pair[0].send(b"tail")
    pair[0].close()
    assert await reading == b"head" + log[100:7_000_000] + log[:10] + b"tail"


async def test_what_is_wrong_from_the_start_is_raised_before_anything_is_lent(
    pool: WorkerPool, replica: ReplicaWriter, tmp_path: Path
) -> None:
    segment, log = await stored(pool, replica)
    with pytest.raises(InvalidRequest):
        async with pool.waiting_log(LogRequest(segment, len(log) + 1)):
            pass
    (tmp_path / "tier" / segment_keys(segment.prefix, segment.segment_id, 0).log).unlink()
    with pytest.raises(CorruptData):
        async with pool.waiting_log(LogRequest(segment)):
            pass
    await idle(pool)


async def test_a_worker_that_may_open_no_more_files_refuses_one_connection_and_lives_on(
    pool: WorkerPool, replica: ReplicaWriter, pair: tuple[socket.socket, socket.socket]
) -> None:
    segment, log = await stored(pool, replica)
    pid = pool.pids[0]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    async with pool.waiting_log(LogRequest(segment, 0, 10)) as held:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        with pytest.raises(RetryLater, match="LimitNOFILE"):
            await held.send_to(pair[0], RULES)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    async with pool.waiting_log(LogRequest(segment, 0, 10)) as held:
        assert await held.send_to(pair[0], RULES) == Sent(ClientEnd.TOOK_ALL, 10)
    assert pool.pids == (pid,)
    assert await asyncio.get_running_loop().sock_recv(pair[1], 20) == log[:10]


async def test_a_damaged_chunk_is_never_sent(
    pool: WorkerPool,
    replica: ReplicaWriter,
    pair: tuple[socket.socket, socket.socket],
    tmp_path: Path,
) -> None:
    segment, log = await stored(pool, replica)
    path = tmp_path / "tier" / segment_keys(segment.prefix, segment.segment_id, 0).log
    path.write_bytes(log[:5_000_000] + bytes([log[5_000_000] ^ 1]) + log[5_000_001:])
    reading = asyncio.create_task(rest_of(pair[1]))
    with pytest.raises(CorruptData):
        async with pool.waiting_log(LogRequest(segment)) as held:
            await held.send_to(pair[0], RULES)
    pair[0].close()
    got = await reading
    assert got == log[: len(got)]
    assert 0 < len(got) <= 5_000_000


async def test_leaving_it_stops_the_sending_and_frees_the_connection(
    pool: WorkerPool, replica: ReplicaWriter, pair: tuple[socket.socket, socket.socket]
) -> None:
    segment, log = await stored(pool, replica)
    files = worker_files(pool)

    async def send() -> None:
        async with pool.waiting_log(LogRequest(segment)) as held:
            await held.send_to(pair[0], RULES)

    sending = asyncio.create_task(send())
    first = await asyncio.get_running_loop().sock_recv(pair[1], 1)
    sending.cancel()
    await asyncio.wait((sending,))
    await idle(pool)  # nobody takes anything meanwhile, so that it can't have sent all
    pair[0].close()
    got = first + await rest_of(pair[1])  # ends only once the worker has closed its own
    assert got == log[: len(got)]
    assert len(got) < len(log)
    await idle(pool)
    assert worker_files(pool) <= files + 1  # of the store, which it may keep
    async with pool.waiting_log(LogRequest(segment)):
        pass  # never lent
    await idle(pool)


async def test_a_client_that_goes_is_no_error_of_ours(
    pool: WorkerPool, replica: ReplicaWriter, pair: tuple[socket.socket, socket.socket]
) -> None:
    segment, _ = await stored(pool, replica)
    async with pool.waiting_log(LogRequest(segment)) as held:
        pair[1].close()
        assert (await held.send_to(pair[0], RULES)).end is ClientEnd.GONE
    async with pool.waiting_log(LogRequest(segment, 0, 100)):
        pass


async def test_a_client_that_takes_nothing_is_given_up(
    pool: WorkerPool, replica: ReplicaWriter, pair: tuple[socket.socket, socket.socket]
) -> None:
    segment, log = await stored(pool, replica)
    async with pool.waiting_log(LogRequest(segment)) as held:
        sent = await held.send_to(pair[0], replace(RULES, grace_s=0.01))
    assert sent.end is ClientEnd.LATE
    assert sent.sent_bytes < len(log)


async def test_a_killed_worker_is_an_error_and_its_client_gets_no_more(
    pool: WorkerPool, replica: ReplicaWriter, pair: tuple[socket.socket, socket.socket]
) -> None:
    segment, log = await stored(pool, replica)
    pid = pool.pids[0]
    async with pool.waiting_log(LogRequest(segment)) as held:
        sending = asyncio.create_task(held.send_to(pair[0], RULES))
        first = await asyncio.get_running_loop().sock_recv(pair[1], 1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RetryLater, match="ended"):
            await sending
    pair[0].close()
    got = first + await rest_of(pair[1])
    assert got == log[: len(got)]
    assert len(got) < len(log)
    await restarted(pool, pid)
    async with pool.waiting_log(LogRequest(segment, 0, 100)):
        pass
