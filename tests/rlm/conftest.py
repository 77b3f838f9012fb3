"""A pool of one real worker, and what it copies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rlm.worker.pool import WorkerPool
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import pool_of, two_segments


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    (tmp_path / "tier").mkdir()
    return tmp_path / "tier"


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """What the pool copies. Files of tests with a log of their own have a fixture of this name."""
    return two_segments(tmp_path)


@pytest.fixture
async def pool(tier: Path) -> AsyncIterator[WorkerPool]:
    pool = pool_of(tier)
    await pool.start()
    yield pool
    await pool.close()
