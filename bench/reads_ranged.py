"""Ranged reads of verified chunks from MinIO, beside bare ranged GETs by the same client.

`python -m bench.reads_ranged`. Eight readers take 4 MiB ranges of one segment, by turns verified
and bare; then single readers ask for the first byte of `records`, with manifest and index cold, and
for as many bytes by one bare GET. Both run in this process, through the same opened store.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from bench.copy_log_dirs import write_log_dir
from bench.table import Measure, write_table
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import LogRequest, RecordsEnd, RecordsRequest, SegmentPiece
from rlm.data_plane.verified_chunks import WINDOW_BYTES, Parts
from rlm.format.object_keys import segment_keys
from rlm.local_log.log_dir import find_partitions
from rsm_backends.open_store import open_store
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import closing_stream
from strandline.node import ambient
from tests.real.minio import MINIO_VERSION, MinioServer
from tests.rlm.tier import STORE, Pieces, copy_job, tiered

MIB = 1 << 20
READERS = 8
RANGE_BYTES = 4 * MIB
RANGES_PER_READER = 48
ROUNDS = 9
FIRST_BYTES = 100
NEVER_MS = 10**15


async def drain(stream: AsyncIterator[Parts]) -> int:
    """Read a stream to its end; return its number of bytes."""
    async with closing_stream(stream):
        return sum([len(part) async for parts in stream for part in parts])


async def drain_bare(stream: AsyncIterator[bytes]) -> int:
    """Drain a store's own stream; the number of its bytes."""
    async with closing_stream(stream):
        return sum([len(piece) async for piece in stream])


async def speed(read: Callable[[int], Awaitable[int]], size: int) -> float:
    """MiB/s of all readers together; each begins elsewhere."""

    async def reader(number: int) -> int:
        done = 0
        for step in range(RANGES_PER_READER):
            at = (number * 7 + step * 3) * RANGE_BYTES % (size - RANGE_BYTES)
            done += await read(at)
        return done

    began_at = time.perf_counter()
    total = sum(await asyncio.gather(*(reader(number) for number in range(READERS))))
    return total / MIB / (time.perf_counter() - began_at)


def ignore_end(_: RecordsEnd) -> None:
    """Ignore the end of a read, which is known here."""


async def first_byte_ms(stream: AsyncIterator[bytes]) -> float:
    """The milliseconds from asking to the first piece."""
    began_at = time.perf_counter()
    async with closing_stream(stream):
        await anext(stream)
        return 1000 * (time.perf_counter() - began_at)


async def opened(config: StoreConfig) -> ObjectStore:
    """The store as a worker opens it."""
    return await open_store(
        replace(config, name=STORE),
        sleep=ambient.sleep,
        monotonic=ambient.monotonic,
        random_fraction=ambient.random_fraction,
        now_ms=ambient.now_ms,
    )


def plane_on(store: ObjectStore) -> DataPlane:
    """A data plane whose caches are empty."""
    return DataPlane({STORE: store}, now_ms=ambient.now_ms)


async def run(config: StoreConfig, log_dir: Path, _minio_data: Path) -> list[Measure]:
    """Copy one segment, then read it."""
    store = await opened(config)
    (partition,) = find_partitions([log_dir], kafka_cluster_id=None).partitions
    job = replace(copy_job(partition, partition.segments[0]), upload_deadline_ms=NEVER_MS)
    segment = tiered(job, await plane_on(store).copy(job))
    key = segment_keys(job.prefix, job.segment_id, job.start_offset).log
    size = segment.custom_metadata.log_bytes
    plane = plane_on(store)

    pieces = Pieces([SegmentPiece(segment, segment.start_offset, segment.end_offset)])

    def verified(at: int) -> Awaitable[int]:
        return drain(plane.parts(LogRequest(segment, at, at + RANGE_BYTES), pieces, ignore_end))

    def bare(at: int) -> Awaitable[int]:
        return drain_bare(store.get(key, start=at, end=at + RANGE_BYTES))

    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(await speed(bare, size))
        ours.append(await speed(verified, size))
    middle = (segment.start_offset + segment.end_offset) // 2
    cold, got = [], []
    for _ in range(FIRST_BYTES):
        got.append(await first_byte_ms(store.get(key, start=size // 2, end=size // 2 + MIB)))
        request = RecordsRequest(middle, MIB)
        cold.append(await first_byte_ms(plane_on(store).read_records(request, pieces)))
    await store.close()
    return measures(ours, theirs, cold, got)


def measures(
    ours: list[float], theirs: list[float], cold: list[float], got: list[float]
) -> list[Measure]:
    """The table's lines."""
    ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
    ratio = ratios[len(ratios) // 2]
    typical, bare_typical = sorted(cold)[len(cold) // 2], sorted(got)[len(got) // 2]
    bound_ms = 1.2 * bare_typical + 2
    return [
        Measure("verified ranges of 4 MiB, 8 readers", "MiB/s", ours),
        Measure("bare ranged GETs, 8 readers", "MiB/s", theirs),
        Measure("verified", "x bare", ratios, ">= 0.8", ratio >= 0.8),
        Measure(
            "first byte of records, cold", "ms", cold,
            f"<= {bound_ms:.1f} (1.2 x bare + 2)", typical <= bound_ms,
        ),
        Measure("first byte of a bare GET of 1 MiB", "ms", got),
    ]  # fmt: skip


def on_minio(
    run: Callable[[StoreConfig, Path, Path], Coroutine[Any, Any, list[Measure]]],
    *,
    segments: int,
    segment_bytes: int = 128 * MIB,
) -> list[Measure]:
    """Measures of `run(store, log directory, MinIO's data)`, over one partition, all in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-reads-") as folder:
        home = Path(folder)
        source = write_log_dir(
            home / "log-dir",
            batch_bytes=16 * 1024,
            partitions=1,
            segments=segments,
            segment_bytes=segment_bytes,
        )
        (home / "minio").mkdir()
        with (
            MinioServer(home / "minio") as minio,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return runner.run(run(minio.store_config, source.path, home / "minio/data"))


def main() -> None:
    """Measure and print."""
    write_table(
        "Reads: one segment of 128 MiB, 16 KiB batches",
        on_minio(run, segments=1),
        packages=("aiobotocore", "aiohttp", "uvloop", "crc32c"),
        notes=(
            f"MinIO {MINIO_VERSION} over plain HTTP on the same machine, data on tmpfs",
            f"windows of {WINDOW_BYTES // MIB} MiB",
        ),
    )


if __name__ == "__main__":
    main()
