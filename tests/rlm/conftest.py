"""Where short-lived nodes keep their data, and a pool of one real worker with what it copies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rlm.worker.pool import WorkerPool
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import pool_of, two_segments

MEMORY_DISK = Path("/dev/shm")


@pytest.fixture
def many_worlds(tmp_path: Path) -> Iterator[Path]:
    """A place for hundreds of short-lived nodes: in memory where there is such a thing, since
    their thousands of fsyncs would prove nothing here.
    """
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY_DISK) as path:
        yield Path(path)


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
