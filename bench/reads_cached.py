"""Reads one GiB twice through the chunk cache, from MinIO.

`python -m bench.reads_cached`. Eight segments of 128 MiB are read whole by eight readers at once,
as a worker reads them: without a cache, then twice through an empty one that holds all of them, and
twice through one that holds a quarter, whose memory is looked at.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from bench.node_process import resident_mib
from bench.reads_ranged import NEVER_MS, drain, ignore_end, on_minio, opened, plane_on
from bench.table import Measure, write_table
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import LogRequest, TieredSegment
from rlm.local_log.log_dir import find_partitions
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from strandline.node import ambient
from tests.real.minio import MINIO_VERSION
from tests.rlm.tier import STORE, Pieces, copy_job, tiered

MIB = 1 << 20
SEGMENTS = 8
ROUNDS = 3
LARGE_MIB = 1_152
SMALL_MIB = 256
OVERHEAD_MIB_MAX = 64
"""Readers' windows, manifests, and what an allocator keeps beside the chunks."""


def cached(store: ObjectStore, mib: int) -> DataPlane:
    """A data plane whose caches are empty."""
    return DataPlane({STORE: store}, now_ms=ambient.now_ms, chunk_cache_bytes_max=mib * MIB)


async def speed(plane: DataPlane, segments: list[TieredSegment]) -> float:
    """MiB/s of all segments at once."""
    began_at = time.perf_counter()
    reads = (drain(plane.parts(LogRequest(each), Pieces(), ignore_end)) for each in segments)
    total = sum(await asyncio.gather(*reads))
    return total / MIB / (time.perf_counter() - began_at)


async def run(config: StoreConfig, log_dir: Path, _minio_data: Path) -> list[Measure]:
    """Copy, then read."""
    store = await opened(config)
    segments = []
    (partition,) = find_partitions([log_dir], kafka_cluster_id=None).partitions
    for source in partition.segments[:SEGMENTS]:
        job = replace(copy_job(partition, source), upload_deadline_ms=NEVER_MS)
        segments.append(tiered(job, await plane_on(store).copy(job)))
    bare: list[float] = []
    first: list[float] = []
    second: list[float] = []
    grown: list[float] = []
    await speed(plane_on(store), segments)
    for _ in range(ROUNDS):
        before = resident_mib()
        small = cached(store, SMALL_MIB)
        for _ in range(2):
            await speed(small, segments)
        grown.append(resident_mib() - before)
        del small
        bare.append(await speed(plane_on(store), segments))
        large = cached(store, LARGE_MIB)
        first.append(await speed(large, segments))
        second.append(await speed(large, segments))
        del large
    await store.close()
    ratios = [again / once for again, once in zip(second, first, strict=True)]
    return [
        Measure("without a cache", "MiB/s", bare),
        Measure(f"first read, cache of {LARGE_MIB} MiB", "MiB/s", first),
        Measure("second read", "MiB/s", second),
        Measure("second", "x first", ratios, ">= 3", min(ratios) >= 3),
        Measure(
            f"memory grown by a cache of {SMALL_MIB} MiB, two scans of 1 GiB", "MiB", grown,
            f"<= {SMALL_MIB + OVERHEAD_MIB_MAX}", max(grown) <= SMALL_MIB + OVERHEAD_MIB_MAX,
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    write_table(
        "Reads through the chunk cache: 8 segments of 128 MiB, 8 readers",
        on_minio(run, segments=SEGMENTS),
        packages=("aiobotocore", "aiohttp", "uvloop", "crc32c"),
        notes=(f"MinIO {MINIO_VERSION} over plain HTTP on the same machine, data on tmpfs",),
    )


if __name__ == "__main__":
    main()
