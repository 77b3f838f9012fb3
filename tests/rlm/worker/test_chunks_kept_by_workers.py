"""A worker process keeps chunks as its pool's limits say."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlm.data_plane.chunk_cache import ChunkCounts
from rlm.data_plane.read_request import LogRequest
from rlm.worker.pool import WorkerPool
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.real_workers import LIMITS, copied, pool_of, restarted

HEARTBEAT_S = 0.5
"""The tests wait for one, however long it takes."""


async def test_chunks_read_once_are_read_again_without_the_store(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(15):
        replica.append(10, value_bytes=10_000)
    replica.roll()
    pool = pool_of(tier, limits=replace(LIMITS, chunk_cache_bytes_max=1 << 20))
    await pool.start()
    try:
        request = LogRequest((await copied(pool, replica)).pieces[0].segment, 100, 300_000)
        first = b"".join([part async for part in pool.read_log(request)])
        for log in tier.rglob("*.log"):
            log.unlink()
        assert b"".join([part async for part in pool.read_log(request)]) == first
        with pytest.raises(CorruptData):
            [part async for part in pool.read_log(replace(request, end=900_000))]
    finally:
        await pool.close()


async def told(pool: WorkerPool, expected: tuple[ChunkCounts, int]) -> None:
    """Wait until the heartbeats say so."""
    async with asyncio.timeout(30):
        while (pool.chunk_counts(), pool.chunk_bytes_held()) != expected:
            await asyncio.sleep(HEARTBEAT_S / 10)


async def test_a_pool_tells_what_its_workers_found_in_memory_those_that_ended_included(
    tmp_path: Path,
) -> None:
    (tmp_path / "tier").mkdir()
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    replica.append(10, value_bytes=10_000)
    replica.roll()
    limits = replace(LIMITS, chunk_cache_bytes_max=1 << 20, silence_deadline_s=10 * HEARTBEAT_S)
    pool = pool_of(tmp_path / "tier", limits=limits)
    await pool.start()
    try:
        request = LogRequest((await copied(pool, replica)).pieces[0].segment)
        first = b"".join([part async for part in pool.read_log(request)])
        await told(pool, (ChunkCounts(misses=1), len(first)))
        (pid,) = pool.pids
        os.kill(pid, signal.SIGKILL)
        await restarted(pool, pid)
        assert (pool.chunk_counts(), pool.chunk_bytes_held()) == (ChunkCounts(misses=1), 0)
        for _ in range(2):
            assert b"".join([part async for part in pool.read_log(request)]) == first
        await told(pool, (ChunkCounts(hits=1, misses=2), len(first)))
    finally:
        await pool.close()


async def test_the_ranges_of_a_log_are_read_by_one_worker_of_several(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(15):
        replica.append(10, value_bytes=10_000)
    replica.roll()
    limits = replace(LIMITS, chunk_cache_bytes_max=1 << 22, silence_deadline_s=10 * HEARTBEAT_S)
    pool = pool_of(tmp_path / "tier", limits=limits, size=2)
    await pool.start()
    try:
        request = LogRequest((await copied(pool, replica)).pieces[0].segment, 0, 100_000)

        async def read() -> int:
            return sum([len(part) async for part in pool.read_log(request)])

        await read()
        assert await asyncio.gather(*(read() for _ in range(4))) == [100_000] * 4
        await told(pool, (ChunkCounts(hits=4, misses=1), 262_144))
    finally:
        await pool.close()
