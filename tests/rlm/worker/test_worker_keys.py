"""A SIGHUP reaches the workers: they copy and read with keys of their own."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from kafka_formats.errors import Refused
from rlm.worker.handle import WorkerAmbient
from rlm.worker.pool import WorkerPool
from strandline.node import ambient
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import COMMAND, LIMITS, big_job
from tests.rlm.tier import STORE
from tests.rsm_backends.checking_s3 import checking_s3

LOOKS_EVERY_S = 0.1
WHOLE = 4 << 20


def write_keys(path: Path, key_id: str) -> None:
    path.write_text(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = s\n")


async def test_workers_read_rotated_keys_again_when_they_are_told(
    replica: ReplicaWriter, tmp_path: Path
) -> None:
    keys = tmp_path / "credentials"
    write_keys(keys, "first")
    async with checking_s3() as server:
        config = replace(server.config(credentials_file=keys), name=STORE)
        around = WorkerAmbient(ambient.monotonic, ambient.sleep)
        pool = WorkerPool(COMMAND, {STORE: config}, around, limits=LIMITS)
        await pool.start()
        await pool.copy(big_job(replica, part_bytes=WHOLE))
        assert set(server.asked) == {"first"}
        dated = keys.stat()
        write_keys(keys, "other")  # of the same length
        os.utime(keys, ns=(dated.st_atime_ns, dated.st_mtime_ns))  # its date tells nothing
        pool.look_for_keys()
        async with asyncio.timeout(60):
            for attempt in range(1, 1_000):
                try:
                    await pool.copy(big_job(replica, part_bytes=WHOLE, attempt=attempt))
                except Refused:  # the server takes the first key alone
                    break
                await asyncio.sleep(LOOKS_EVERY_S)
        assert "other" in server.asked
        await pool.close()
