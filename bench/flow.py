"""Reading while copying, each at full speed, and how exactly the rate limits hold.

`python -m bench.flow`: one worker process and a MinIO, everything in memory (/dev/shm). Copies
(four at once, of 64 MiB segments) and reads (four at once, whole segments) run alone, then side by
side, for as long each time; then each under a limit.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from bench.reads_ranged import on_minio
from bench.table import Measure, write_table
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.read_request import LogRequest, TieredSegment
from rlm.local_log.log_dir import find_partitions
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import MIB, FlowLimits, Rates
from rlm.worker.handle import WorkerAmbient
from rlm.worker.pool import WorkerPool
from rsm_backends.store_config import StoreConfig
from strandline.node import ambient
from strandline.node.workers import worker_command
from tests.real import s3_admin
from tests.real.minio import MINIO_VERSION
from tests.rlm.tier import STORE, copy_job, tiered

ROUNDS = 3
WINDOW_S = 8.0
LIMITED_COPIES = 6
COPIES = READERS = 4
SEGMENTS = 4
PART_BYTES = 12 * MIB
COPY_LIMIT, READ_LIMIT = 30 * MIB, 20 * MIB
COPIED = "copied/"
NEVER_MS = 10**15


@dataclass(slots=True)
class Site:
    """The worker, its copy jobs and its segments to read; bytes are counted as they are
    reported.
    """

    pool: WorkerPool
    flow: FlowControl
    jobs: list[CopyJob]
    segments: list[TieredSegment]
    store: StoreConfig
    minio: Path
    attempts: int = 0

    async def copying(self, count: Callable[[int], None]) -> None:
        """Copy one segment after the other, under new ids."""
        while True:
            job = self._next_job()
            done = 0

            def told(total: int) -> None:
                nonlocal done
                count(total - done)
                done = total

            await self.pool.copy(job, lambda progress: told(progress.bytes_done))

    async def reading(self, count: Callable[[int], None], number: int) -> None:
        """Read one segment after the other."""
        while True:
            segment = self.segments[number % len(self.segments)]
            number += 1
            async for data in self.pool.read_log(LogRequest(segment)):
                count(len(data))

    async def speeds(self, *, copies: int, readers: int, window_s: float) -> tuple[float, float]:
        """MiB/s of all copies and of all reads, side by side, once they are under way."""
        moved = [0, 0]

        def counter(which: int) -> Callable[[int], None]:
            def count(size: int) -> None:
                moved[which] += size

            return count

        tasks = [asyncio.create_task(self.copying(counter(0))) for _ in range(copies)]
        tasks += [
            asyncio.create_task(self.reading(counter(1), number)) for number in range(readers)
        ]
        try:
            await asyncio.sleep(window_s / 4)
            moved[:] = [0, 0]
            began_at = perf_counter()
            await asyncio.sleep(window_s)
            took_s = perf_counter() - began_at
            found = moved[0] / MIB / took_s, moved[1] / MIB / took_s
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._forget_copies)
        return found

    async def limited_speeds(self) -> tuple[float, float]:
        """Bytes a second of a fixed number of whole copies, and of the reads beside them.

        Parts side by side end together, so what has ended by some moment says little.
        """
        read = 0

        def count(size: int) -> None:
            nonlocal read
            read += size

        readers = [asyncio.create_task(self.reading(count, each)) for each in range(READERS)]
        try:
            began_at = perf_counter()
            done = await asyncio.gather(*(self.copy_next() for _ in range(LIMITED_COPIES)))
            took_s = perf_counter() - began_at
            return sum(done) / took_s, read / took_s
        finally:
            for task in readers:
                task.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            await asyncio.to_thread(self._forget_copies)

    async def copy_next(self) -> int:
        """Copy a segment under a new id; the bytes that the store got."""
        sent = (await self.pool.copy(self._next_job())).custom_metadata
        return sent.log_bytes + sent.indexes_bytes + sent.manifest_bytes

    def _next_job(self) -> CopyJob:
        self.attempts += 1
        id_ = Uuid(self.attempts.to_bytes(16, "big"))
        job = self.jobs[self.attempts % len(self.jobs)]
        return replace(job, segment_id=replace(job.segment_id, id=id_))

    def _forget_copies(self) -> None:
        s3 = s3_admin.client(self.store)
        listing = {"Bucket": self.store.bucket, "Prefix": COPIED}
        while found := s3.list_objects_v2(**listing).get("Contents"):
            keys = [{"Key": each["Key"]} for each in found]
            s3.delete_objects(Bucket=self.store.bucket, Delete={"Objects": keys})
        s3.close()
        for each in (self.minio / ".minio.sys/tmp/.trash").iterdir():
            shutil.rmtree(each, ignore_errors=True)  # it does that itself when it finds the time


async def full_speed(site: Site) -> list[Measure]:
    """Speeds alone and side by side, by turns."""
    alone_copy, alone_read, copies, reads = [], [], [], []
    for _ in range(ROUNDS):
        alone_copy.append((await site.speeds(copies=COPIES, readers=0, window_s=WINDOW_S))[0])
        alone_read.append((await site.speeds(copies=0, readers=READERS, window_s=WINDOW_S))[1])
        both = await site.speeds(copies=COPIES, readers=READERS, window_s=WINDOW_S)
        copies.append(both[0])
        reads.append(both[1])
    shares = {
        "copying beside reading": [a / b for a, b in zip(copies, alone_copy, strict=True)],
        "reading beside copying": [a / b for a, b in zip(reads, alone_read, strict=True)],
    }
    return [
        Measure("copying alone", "MiB/s", alone_copy),
        Measure("reading alone", "MiB/s", alone_read),
        Measure("copying, while reading", "MiB/s", copies),
        Measure("reading, while copying", "MiB/s", reads),
        *(
            Measure(name, "x alone", each, ">= 0.4", statistics.median(each) >= 0.4)
            for name, each in shares.items()
        ),
    ]


async def limited(site: Site) -> list[Measure]:
    """Speeds under a limit, against the limit."""
    site.flow.change(FlowLimits(Rates(COPY_LIMIT, READ_LIMIT)))
    copies, reads = [], []
    for _ in range(ROUNDS):
        both = await site.limited_speeds()
        copies.append(both[0] / COPY_LIMIT)
        reads.append(both[1] / READ_LIMIT)

    def line(name: str, found: list[float]) -> Measure:
        right = all(abs(each - 1) <= 0.1 for each in found)
        return Measure(name, "x the limit", found, "0.9 to 1.1", right)

    return [
        line(f"copying, limited to {COPY_LIMIT // MIB} MiB/s", copies),
        line(f"reading, limited to {READ_LIMIT // MIB} MiB/s", reads),
    ]


async def run(config: StoreConfig, log_dir: Path, minio: Path) -> list[Measure]:
    """All of it on one worker."""
    flow = FlowControl(FlowLimits(), part_bytes=PART_BYTES, workers=1, monotonic=ambient.monotonic)
    store = replace(config, name=STORE)
    pool = WorkerPool(
        worker_command("text", 1),
        {STORE: store},
        WorkerAmbient(ambient.monotonic, ambient.sleep),
        flow=flow,
    )
    await pool.start()
    try:
        (partition,) = find_partitions([log_dir], kafka_cluster_id=None).partitions
        made = [copy_job(partition, each) for each in partition.segments[:-1]]
        kept = [replace(job, prefix="kept/", upload_deadline_ms=NEVER_MS) for job in made]
        segments = [tiered(job, await pool.copy(job)) for job in kept]
        jobs = [replace(job, prefix=COPIED, upload_deadline_ms=NEVER_MS) for job in made]
        site = Site(pool, flow, jobs, segments, store, minio)
        return [*await full_speed(site), *await limited(site)]
    finally:
        await pool.close()


def main() -> None:
    """Measure and print."""
    write_table(
        "Reading while copying, and rate limits",
        on_minio(run, segments=SEGMENTS, segment_bytes=64 * MIB),
        packages=("aiobotocore", "aiohttp", "uvloop"),
        notes=(f"MinIO {MINIO_VERSION}, one worker, {COPIES} copies, {READERS} readers",),
    )


if __name__ == "__main__":
    main()
