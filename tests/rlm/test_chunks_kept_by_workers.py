"""A worker process keeps chunks as its pool's limits say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import NotFound
from rlm.read_request import LogRequest
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.test_worker_pool import LIMITS, copied, pool_of


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
        with pytest.raises(NotFound):
            [part async for part in pool.read_log(replace(request, end=900_000))]
    finally:
        await pool.close()
