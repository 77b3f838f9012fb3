"""Reads a tier in a folder on Spark to `noop`, against the ceiling of transport, by turns.

`python -m bench.pipeline_read` writes one table. Two tiers, uncompressed and zstd, lie in memory
(/dev/shm, at most 2.1 GiB) and are removed afterwards. MB are 10**6 bytes of records, uncompressed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession

from bench import replayed_batch
from bench.machine_cpu import cpu_seconds_of
from bench.pipeline_tier import TOPIC, FolderTier, TierShape, write_tier
from bench.table import Measure, write_table
from kafka_formats.compression import Codec
from pipeline.session import open_session

CEILING_SHARE_MIN = 0.85
VALUE_BYTES = 1024


def session(home: Path) -> SparkSession:
    """Two cores."""
    return open_session(
        "bench",
        master="local[2]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.local.dir": str(home / "spark"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        },
    )


def tiered(spark: SparkSession, tier: FolderTier, **options: str) -> DataFrame:
    """All records of the tier."""
    reader = spark.read.format("strandline").option("strandline.store", tier.store)
    return reader.options(subscribe=TOPIC, **options).load()


def replayed(spark: SparkSession, tier: FolderTier, tasks: int) -> DataFrame:
    """As many rows, and as long, of one batch."""
    reader = spark.read.format(replayed_batch.NAME).option("rows", tier.records)
    return reader.option("tasks", tasks).option("value-bytes", VALUE_BYTES).load()


def seconds(frame: DataFrame) -> float:
    """To the sink that takes rows and drops them."""
    began = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - began


def measures_of(spark: SparkSession, home: Path, codec: Codec, rounds: int) -> list[Measure]:
    """One tier, both by turns."""
    tier = write_tier(home, TierShape(codec, VALUE_BYTES, segments=16))
    frame = tiered(spark, tier)
    tasks = frame.rdd.getNumPartitions()
    ceiling = replayed(spark, tier, tasks)
    count = tiered(spark, tier, columns="offset").count()
    if count != tier.records:
        raise RuntimeError(f"{count} records of {tier.records} were read")
    seconds(frame)  # the workers start, the JVM compiles
    seconds(ceiling)
    megabytes = tier.plain_bytes / 1e6
    one = tiered(spark, tier, endingOffsets=json.dumps({TOPIC: {"0": 1, "1": 0}}))
    read, replay, least, read_cpu, replay_cpu = [], [], [], [], []
    for _ in range(rounds):
        took_s, cpu_s = cpu_seconds_of(lambda: seconds(frame))
        read.append(megabytes / took_s)
        read_cpu.append(cpu_s / megabytes * 1e3)
        took_s, cpu_s = cpu_seconds_of(lambda: seconds(ceiling))
        replay.append(megabytes / took_s)
        replay_cpu.append(cpu_s / megabytes * 1e3)
        least.append(seconds(one))
    shares = [ours / other for ours, other in zip(read, replay, strict=True)]
    name = f"{codec.name.lower()}, {tasks} tasks"
    return [
        Measure(f"{name}: strandline", "MB/s", read),
        Measure(f"{name}: one batch replayed", "MB/s", replay),
        Measure(f"{name}: strandline, CPU of the machine", "s/GB", read_cpu),
        Measure(f"{name}: one batch replayed, CPU of the machine", "s/GB", replay_cpu),
        Measure(f"{name}: strandline, a query for one record", "s", least),
        Measure(
            f"{name}: strandline", "x the replayed", shares,
            target=f">= {CEILING_SHARE_MIN:g}", met=median(shares) >= CEILING_SHARE_MIN,
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--work-dir", type=Path, default=Path("/dev/shm"))
    chosen = options.parse_args()
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(dir=chosen.work_dir, prefix="bench-read-") as folder:
        spark = session(Path(folder))
        spark.dataSource.register(replayed_batch.ReplayedBatch)
        for codec in (Codec.NONE, Codec.ZSTD):
            with tempfile.TemporaryDirectory(dir=folder) as home:
                measures += measures_of(spark, Path(home), codec, chosen.rounds)
        spark.stop()
    write_table(
        "Reading a tier on Spark",
        measures,
        packages=("pyspark", "pyarrow", "zstandard"),
        notes=("local[2], a tier of 2 GiB of records of 1 KB in a folder on tmpfs",),
    )


if __name__ == "__main__":
    main()
