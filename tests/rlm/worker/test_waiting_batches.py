"""Real worker processes that hold batches, and send them to a client or to this process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
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
from tests.rlm.real_workers import copied
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
