"""Pools of real worker processes for tests, and what they copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.read_request import (
    SegmentPiece,
)
from rlm.worker.handle import WorkerAmbient, WorkerLimits
from rlm.worker.pool import WorkerPool
from rsm_backends.store_config import StoreConfig
from strandline.node import ambient
from strandline.node.workers import worker_command
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import STORE, Pieces, copy_job, only_partition, small_parts, tiered

COMMAND = worker_command("text", 1)
SECRET = "a-secret-access-key-nobody-should-see"
LIMITS = WorkerLimits(restart_backoff_base_s=0.01)
FAR_FUTURE_MS = 10**15


def pool_of(
    tier: Path,
    *,
    command: Sequence[str] = COMMAND,
    limits: WorkerLimits = LIMITS,
    size: int = 1,
) -> WorkerPool:
    config = StoreConfig(name=STORE, kind="filesystem", path=tier, secret_access_key=SECRET)
    return WorkerPool(
        command,
        {STORE: config},
        WorkerAmbient(ambient.monotonic, ambient.sleep),
        limits=replace(limits, count=size),
    )


def two_segments(tmp_path: Path) -> ReplicaWriter:
    """Two segments: about 1.5 MB, and a small one with an aborted transaction."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(15):
        replica.append(10, value_bytes=10_000)
    replica.roll()
    replica.append(3, producer_id=1, transactional=True)
    replica.append(2)
    replica.end_transaction(1, commit=False)
    replica.roll()
    return replica


async def copied(pool: WorkerPool, replica: ReplicaWriter, *, attempt: int = 0) -> Pieces:
    pieces = Pieces()
    partition = only_partition(replica.log_dir)
    for segment in partition.segments[:-1]:
        job = copy_job(partition, segment, attempt=attempt)
        job = replace(job, upload_deadline_ms=FAR_FUTURE_MS)
        result = await pool.copy(job)
        pieces.pieces.append(SegmentPiece(tiered(job, result), job.start_offset, job.end_offset))
    return pieces


def big_job(replica: ReplicaWriter, *, part_bytes: int = 400_000, attempt: int = 0) -> CopyJob:
    """The first segment, in parts; 2000 bytes each make hundreds of requests."""
    partition = only_partition(replica.log_dir)
    job = copy_job(partition, partition.segments[0], attempt=attempt)
    return small_parts(replace(job, upload_deadline_ms=FAR_FUTURE_MS), part_bytes)


def all_bytes(replica: ReplicaWriter) -> bytes:
    return b"".join(replica.path(offset, ".log").read_bytes() for offset in (0, 150))


async def restarted(pool: WorkerPool, pid: int) -> None:
    while not pool.pids or pool.pids[0] == pid:
        await asyncio.sleep(0.01)
