"""Reads the same records by turns on Spark: a tier, by Spark's own Kafka source from a broker
on this machine, and from Parquet.

`python -m bench.spark_read` writes one table. Everything lies in memory (/dev/shm, about 5 GiB) and
is removed afterwards. The broker gets the tier's segments by `restore`, byte for byte. MB are 10**6
bytes of records, uncompressed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from bench.pipeline_read import seconds, session, tiered
from bench.pipeline_tier import TOPIC, FolderTier, TierShape, write_tier
from bench.table import Measure, write_table
from kafka_formats.compression import Codec
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.jobs.job import JobContext
from pipeline.jobs.restore import IntoLogDirs, run
from pipeline.restore.ranges import Wanted
from tests.real.kafka import KafkaBroker
from tests.real.spark_kafka import CONNECTOR_VERSION, spark_kafka_jars

RATIO_MIN = 2.0
PARTITIONS = 2
WARM_UP_ROUNDS = 2
LARGE_BROKER = {"log.index.size.max.bytes": "10485760", "num.io.threads": "8"}
PARQUET_CODECS = {Codec.NONE: "none", Codec.ZSTD: "zstd"}


def brokered(spark: SparkSession, broker: KafkaBroker) -> DataFrame:
    """All records of the broker."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()


def fill(spark: SparkSession, tier: FolderTier, broker: KafkaBroker) -> None:
    """The broker's own log directories get the tier's segments."""
    broker.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "-1"})
    broker.stop()
    options = {"strandline.store": tier.store}
    with closing(open_catalogue(options)) as catalogue:
        context = JobContext(spark, options, catalogue, Console(stderr=True))
        run(context, IntoLogDirs(wanted=Wanted(topic=TOPIC), log_dirs=[broker.log_dir]))
    broker.start()


def measures_of(
    spark: SparkSession, home: Path, codec: Codec, *, rounds: int, segments: int
) -> list[Measure]:
    """One codec, the three by turns."""
    tier = write_tier(home, TierShape(codec, partitions=PARTITIONS, segments=segments))
    broker = KafkaBroker(home / "broker", overrides=LARGE_BROKER, heap_mb=1024)
    with broker:
        fill(spark, tier, broker)
        frames = {"strandline": tiered(spark, tier), "spark-sql-kafka": brokered(spark, broker)}
        parquet = str(home / "parquet")
        writer = frames["strandline"].write.option("compression", PARQUET_CODECS[codec])
        # The values of the tier repeat, as real ones do not: a dictionary would hold them all.
        writer.option("parquet.enable.dictionary", "false").parquet(parquet)
        frames["spark.read.parquet"] = spark.read.parquet(parquet)
        for name, frame in frames.items():
            if (count := frame.count()) != tier.records:
                raise RuntimeError(f"{name}: {count} records of {tier.records}")
            for _ in range(WARM_UP_ROUNDS):
                seconds(frame)  # the JVM compiles
        megabytes = tier.plain_bytes / 1e6
        rates: dict[str, list[float]] = {name: [] for name in frames}
        for _ in range(rounds):
            for name, frame in frames.items():
                rates[name].append(megabytes / seconds(frame))
    ours = rates["strandline"]
    ratios = {
        name: [one / other for one, other in zip(ours, rates[name], strict=True)]
        for name in ("spark-sql-kafka", "spark.read.parquet")
    }
    name = codec.name.lower()
    of_kafka = ratios["spark-sql-kafka"]
    return [
        *(Measure(f"{name}: {way}", "MB/s", found) for way, found in rates.items()),
        Measure(
            f"{name}: strandline", "x spark-sql-kafka", of_kafka,
            target=f">= {RATIO_MIN:g}", met=median(of_kafka) >= RATIO_MIN,
        ),
        Measure(f"{name}: strandline", "x spark.read.parquet", ratios["spark.read.parquet"]),
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--segments", type=int, default=8, help="of 64 MiB, a partition")
    options.add_argument("--work-dir", type=Path, default=Path("/dev/shm"))
    chosen = options.parse_args()
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(dir=chosen.work_dir, prefix="bench-spark-") as folder:
        spark = session(Path(folder), sockets=False, **{"spark.jars": spark_kafka_jars()})
        for codec in (Codec.NONE, Codec.ZSTD):
            with tempfile.TemporaryDirectory(dir=folder) as home:
                measures += measures_of(
                    spark, Path(home), codec, rounds=chosen.rounds, segments=chosen.segments
                )
        spark.stop()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    write_table(
        "Reading on Spark: a tier, a broker, Parquet",
        measures,
        packages=("pyspark", "pyarrow"),
        notes=(
            f"local[2]; spark-sql-kafka {CONNECTOR_VERSION}, Kafka 4.3.0 on the same cores; "
            f"{chosen.segments} segments of 64 MiB, records of 1 KB, in each of "
            f"{PARTITIONS} partitions, all on tmpfs",
            f"load at the end {load}",
        ),
    )


if __name__ == "__main__":
    main()
