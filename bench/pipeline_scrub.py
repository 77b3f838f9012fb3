"""Scrub rates: every byte of a tier read and checked on Spark, from files and from MinIO.

`python -m bench.pipeline_scrub [SEGMENTS]` (16, of 64 MiB, in 4 partitions): uncompressed batches
of 100 KB; local[2]; everything in memory. A round scrubs all of it, from planning to the report.
By turns with it curl gets the same `.log` objects from MinIO, 8 at a time: the store's own rate, by
a client that looks at nothing. The session is started and warm; its tasks' processes share 2 cores
with MinIO.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from botocore.session import get_session
from rich.console import Console

from bench.copy_log_dirs import write_log_dir
from bench.machine_cpu import cpu_seconds_of
from bench.table import Measure, write_table
from kafka_formats.crc32c import crc32c
from pipeline.jobs.job import JobContext
from pipeline.jobs.scrub import ScrubOptions, run
from pipeline.spark.session import open_session
from pipeline.stores.opened_store import opened
from rsm_backends.store_config import StoreConfig
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.pipeline.restore.captured_tier import CapturedTier
from tests.real.minio import MinioServer

ROUNDS = 4
PARTITIONS = 4
SEGMENT_BYTES = 64 << 20
FILES_TARGET_MB_S = 1_000.0
MINIO_TARGET = 0.8
GETS = 8


def main() -> None:
    """Print the table."""
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        logs = write_log_dir(
            folder / "logs", batch_bytes=100_000, segment_bytes=SEGMENT_BYTES,
            partitions=PARTITIONS, segments=segments // PARTITIONS,
        )  # fmt: skip
        tier = tier_log_dir(logs.path, folder / "tier")
        shutil.rmtree(logs.path)
        (folder / "minio").mkdir()
        with MinioServer(folder / "minio") as server:
            (files,) = tier.stores.values()
            minio = replace(server.store_config, name=files.name, prefix=files.prefix)
            asyncio.run(_upload(tier, minio))
            _measure(tier, files, minio)


def _measure(tier: FolderTier, files: StoreConfig, minio: StoreConfig) -> None:
    urls = _presigned(tier, minio)
    log_bytes = sum(s.log_bytes for segments in tier.found.values() for s in segments)
    _scrub(tier, files), _scrub(tier, minio)  # warm
    from_files, from_minio, gets = [], [], []
    minio_cpu, gets_cpu = [], []
    for _ in range(ROUNDS):
        from_files.append(_scrub(tier, files))
        rate, cpu_s = cpu_seconds_of(lambda: _curl(urls, log_bytes))
        gets.append(rate)
        gets_cpu.append(cpu_s / log_bytes * 1e9)
        rate, cpu_s = cpu_seconds_of(lambda: _scrub(tier, minio))
        from_minio.append(rate)
        minio_cpu.append(cpu_s / log_bytes * 1e9)
    ratios = [scrub / get for scrub, get in zip(from_minio, gets, strict=True)]
    write_table(
        "Scrub",
        [
            Measure(
                "from local files", "MB/s", from_files, f">= {FILES_TARGET_MB_S:.0f}",
                median(from_files) >= FILES_TARGET_MB_S,
            ),
            Measure("MinIO, curl's parallel GETs", "MB/s", gets),
            Measure("from MinIO", "MB/s", from_minio),
            Measure("curl and MinIO, CPU of the machine", "s/GB", gets_cpu),
            Measure("scrub and MinIO, CPU of the machine", "s/GB", minio_cpu),
            Measure(
                "from MinIO, of curl's", "ratio", ratios, f">= {MINIO_TARGET}",
                median(ratios) >= MINIO_TARGET,
            ),
        ],
        packages=("pyspark", "botocore"),
        notes=(f"{log_bytes / 1e9:.2f} GB in segments of {SEGMENT_BYTES >> 20} MiB",),
    )  # fmt: skip


def _scrub(tier: FolderTier, store: StoreConfig) -> float:
    """MB/s of the job, as it says itself."""
    spark = open_session("bench", master="local[2]", conf={"spark.ui.enabled": "false"})
    catalogue = CapturedTier({store.name: store}, tier.found)
    context = JobContext(spark, {}, catalogue, Console(stderr=True, quiet=True))
    report = run(context, ScrubOptions(post=False))
    if not report.ok:
        raise RuntimeError("\n".join(report.lines()))
    return sum(p.read_bytes for p in report.partitions) / 1e6 / report.seconds


def _curl(urls: list[str], log_bytes: int) -> float:
    wanted = [part for url in urls for part in ("-o", "/dev/null", url)]
    began = perf_counter()
    subprocess.run(
        ["curl", "-s", "-f", "--no-progress-meter", "-Z", "--parallel-max", str(GETS), *wanted],
        check=True,
    )
    return log_bytes / 1e6 / (perf_counter() - began)


def _presigned(tier: FolderTier, store: StoreConfig) -> list[str]:
    client: Any = get_session().create_client(
        "s3", region_name=store.region, endpoint_url=store.endpoint_url,
        aws_access_key_id=store.access_key_id, aws_secret_access_key=store.secret_access_key,
    )  # fmt: skip
    return [
        client.generate_presigned_url(
            "get_object",
            Params={"Bucket": store.bucket, "Key": segment.keys(store.prefix).log},
        )
        for segments in tier.found.values()
        for segment in segments
    ]


async def _upload(tier: FolderTier, config: StoreConfig) -> None:
    async with opened(config) as store:
        for path in sorted(path for path in tier.folder.rglob("*") if path.is_file()):
            data = path.read_bytes()
            await store.put(str(path.relative_to(tier.folder)), data, crc32c=crc32c(data))


if __name__ == "__main__":
    main()
