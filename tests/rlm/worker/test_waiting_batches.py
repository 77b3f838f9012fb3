"""Real worker processes that hold batches, and send them to a client or to this process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, RetryLater
from rlm.data_plane.read_request import (
    BatchesRequest,
    ClientEnd,
    Isolation,
    SendRules,
    Sent,
    TieredSegment,
)
from rlm.format.object_keys import segment_keys
from rlm.worker.pool import WorkerPool
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import LIMITS, big_job, copied, pool_of
from tests.rlm.tier import Pieces

RULES = SendRules(grace_s=60, bytes_per_s_min=1, store_deadline_s=60)
MAX = 10**9


def request(pieces: Pieces, number: int, offset: int = 0, bytes_max: int = MAX) -> BatchesRequest:
    piece = pieces.pieces[number]
    offset = max(offset, piece.first_offset)
    return BatchesRequest(piece, offset, MAX, bytes_max, Isolation.READ_COMMITTED)


async def idle(pool: WorkerPool) -> None:
    """The worker has confirmed that it does nothing more."""
    while any(worker.jobs for worker in pool._workers.values()):
        await asyncio.sleep(0.001)


async def test_a_client_gets_them_behind_the_head_that_told_their_size(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    pieces = await copied(pool, replica)
    log = replica.path(0, ".log").read_bytes()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        async with pool.waiting_batches(request(pieces, 0, bytes_max=300_000), pieces) as held:
            size = held.found.size_bytes
            assert 200_000 < size <= 300_000
            ours.send(size.to_bytes(4, "big"))
            sending = asyncio.create_task(held.send_to(ours, RULES))
            got = bytearray()
            while len(got) < 4 + size:
                got += await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
            assert await sending == Sent(ClientEnd.TOOK_ALL, size)
    assert got == size.to_bytes(4, "big") + log[:size]


async def test_they_are_read_here_too_and_the_worker_asks_what_decides_them(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    pieces = await copied(pool, replica)
    async with pool.waiting_batches(request(pieces, 1), pieces) as held:
        assert await held.read() == replica.path(150, ".log").read_bytes()
        assert held.found.aborted == ((1, 150),)
    async with pool.waiting_batches(request(pieces, 0), pieces) as held:
        assert await held.read() == replica.path(0, ".log").read_bytes()
    await idle(pool)


async def test_who_leaves_or_finds_damage_leaves_nothing_behind(
    pool: WorkerPool, replica: ReplicaWriter, tier: Path
) -> None:
    pieces = await copied(pool, replica)
    async with pool.waiting_batches(request(pieces, 0), pieces):
        pass
    segment = pieces.pieces[1].segment
    assert isinstance(segment, TieredSegment)
    (tier / segment_keys(segment.prefix, segment.segment_id, segment.start_offset).log).unlink()
    with pytest.raises(CorruptData):
        async with pool.waiting_batches(request(pieces, 1), pieces):
            pass
    await idle(pool)


async def test_a_worker_that_dies_with_them_is_told(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    pieces = await copied(pool, replica)
    async with pool.waiting_batches(request(pieces, 0), pieces) as held:
        os.kill(pool.pids[0], signal.SIGKILL)
        with pytest.raises(RetryLater):
            await held.read()


async def test_clients_that_take_nothing_keep_nobody_from_reading_or_copying(
    tier: Path, replica: ReplicaWriter
) -> None:
    """Each holds two answers: the one that it takes slowly, and the next part of the same Fetch."""
    pool = pool_of(tier, limits=replace(LIMITS, jobs_max=2, held_max=8))
    await pool.start()
    try:
        pieces = await copied(pool, replica)
        async with AsyncExitStack() as held:
            sends = []
            for _ in range(4):
                ours, theirs = socket.socketpair()
                held.enter_context(ours)
                held.enter_context(theirs)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                ours.setblocking(False)
                one = await held.enter_async_context(
                    pool.waiting_batches(request(pieces, 0), pieces)
                )
                sends.append(asyncio.create_task(one.send_to(ours, RULES)))
                if len(sends) < 4:
                    await held.enter_async_context(pool.waiting_batches(request(pieces, 1), pieces))
            async with pool.waiting_batches(request(pieces, 1), pieces) as another:
                with pytest.raises(RetryLater, match="8 answers"):
                    async with pool.waiting_batches(request(pieces, 1), pieces):
                        pass
                assert await another.read() == replica.path(150, ".log").read_bytes()
            await pool.copy(big_job(replica, attempt=1))
            assert not any(each.done() for each in sends)
            for each in sends:
                each.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
        await idle(pool)
        assert [worker.jobs_at_work for worker in pool._workers.values()] == [0]
    finally:
        await pool.close()
