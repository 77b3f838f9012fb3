"""Reads a tier in a folder on Spark to `noop`, against the ceiling of transport, by turns.

`python -m bench.pipeline_read` writes one table. Two tiers, uncompressed and zstd, lie in memory
(/dev/shm, at most 2.1 GiB) and are removed afterwards. MB are 10**6 bytes of records, uncompressed.

The target's ceiling is Spark as it comes, which is what a query's session has: TCP between it and
its Python workers. `--sockets`: both over sockets of the file system, as sessions of our jobs are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession

from bench import replayed_batch
from bench.machine_cpu import cpu_seconds_of
from bench.pipeline_tier import TOPIC, FolderTier, TierShape, write_tier
from bench.table import Measure, write_table
from kafka_formats.compression import Codec
from pipeline.spark import worker_sockets
from pipeline.spark.session import open_session

CEILING_SHARE_MIN = 0.85
UNPACKED_TASKS = 32
"""One for each 64 MiB of records, as of a source that does not pack small segments together."""
VALUE_BYTES = 1024


def session(home: Path, *, sockets: bool, **more: str) -> SparkSession:
    """A session with two cores and `more` settings; without `sockets` as a query's is."""
    return open_session(
        "bench",
        master="local[2]",
        conf={
            worker_sockets.ENABLED: str(sockets).lower(),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.local.dir": str(home / "spark"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            **more,
        },
    )


def tiered(spark: SparkSession, tier: FolderTier, **options: str) -> DataFrame:
    """All records of the tier."""
    reader = spark.read.format("strandline").option("strandline.store", tier.store)
    return reader.options(subscribe=TOPIC, **options).load()


def replayed(spark: SparkSession, tier: FolderTier, tasks: int, *, spared: bool) -> DataFrame:
    """Read as many rows, and as long, of one batch; see `replayed_batch` for `spared`."""
    reader = spark.read.format(replayed_batch.NAME).option("rows", tier.records)
    reader = reader.option("tasks", tasks).option("value-bytes", VALUE_BYTES)
    return reader.option("spared", spared).load()


def seconds(frame: DataFrame) -> float:
    """The seconds of a write to the sink that takes rows and drops them."""
    began = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - began


def measures_of(spark: SparkSession, home: Path, codec: Codec, rounds: int) -> list[Measure]:
    """One tier, both by turns."""
    tier = write_tier(home, TierShape(codec, VALUE_BYTES, segments=16))
    frame = tiered(spark, tier)
    tasks = frame.rdd.getNumPartitions()
    ceilings = {
        "the replayed": replayed(spark, tier, tasks, spared=False),
        "the replayed, workers spared as ours": replayed(spark, tier, tasks, spared=True),
        f"the replayed in {UNPACKED_TASKS} tasks": replayed(
            spark, tier, UNPACKED_TASKS, spared=False
        ),
    }
    frames = (frame, *ceilings.values())
    count = tiered(spark, tier, columns="offset").count()
    if count != tier.records:
        raise RuntimeError(f"{count} records of {tier.records} were read")
    for each in frames:  # the workers start, the JVM compiles
        seconds(each)
    megabytes = tier.plain_bytes / 1e6
    one = tiered(spark, tier, endingOffsets=json.dumps({TOPIC: {"0": 1, "1": 0}}))
    least: list[float] = []
    rates: list[list[float]] = [[] for _ in frames]
    cpu: list[list[float]] = [[] for _ in frames]
    for _ in range(rounds):
        for at, each in enumerate(frames):
            took_s, cpu_s = cpu_seconds_of(partial(seconds, each))
            rates[at].append(megabytes / took_s)
            cpu[at].append(cpu_s / megabytes * 1e3)
        least.append(seconds(one))
    name = f"{codec.name.lower()}, {tasks} tasks"
    measures = [Measure(f"{name}: strandline, a query for one record", "s", least)]
    for at, who in enumerate(("strandline", *ceilings)):
        measures.append(Measure(f"{name}: {who}", "MB/s", rates[at]))
        measures.append(Measure(f"{name}: {who}, CPU of the machine", "s/GB", cpu[at]))
    for at, who in enumerate(ceilings, 1):
        shares = [ours / other for ours, other in zip(rates[0], rates[at], strict=True)]
        measures.append(
            Measure(
                f"{name}: strandline", f"x {who}", shares,
                target=f">= {CEILING_SHARE_MIN:g}", met=median(shares) >= CEILING_SHARE_MIN,
            )
        )  # fmt: skip
    return measures


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--sockets", action="store_true")
    options.add_argument("--work-dir", type=Path, default=Path("/dev/shm"))
    chosen = options.parse_args()
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(dir=chosen.work_dir, prefix="bench-read-") as folder:
        spark = session(Path(folder), sockets=chosen.sockets)
        spark.dataSource.register(replayed_batch.ReplayedBatch)
        for codec in (Codec.NONE, Codec.ZSTD):
            with tempfile.TemporaryDirectory(dir=folder) as home:
                measures += measures_of(spark, Path(home), codec, chosen.rounds)
        spark.stop()
    write_table(
        "Reading a tier on Spark",
        measures,
        packages=("pyspark", "pyarrow", "zstandard"),
        notes=(
            "local[2], a tier of 2 GiB of records of 1 KB in a folder on tmpfs",
            f"workers are spoken to by {'sockets of files' if chosen.sockets else 'TCP'}",
        ),
    )


if __name__ == "__main__":
    main()
