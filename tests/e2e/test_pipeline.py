"""The same query of the broker before its data is gone, and of the tier afterwards; the tables that
it is exported to; and the way back into Kafka: produced to a new topic, and as log directories of
the same broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.export.iceberg_table import open_catalog
from pipeline.export.target_options import delta_storage_options, iceberg_file_properties
from pipeline.jobs.export import ExportOptions
from pipeline.jobs.export import run as run_export
from pipeline.jobs.job import JobContext
from pipeline.jobs.restore import IntoKafka, IntoLogDirs, run
from pipeline.restore.kafka_target import KafkaAddress
from pipeline.restore.ranges import Wanted
from pipeline.restore.reports import LogDirsReport, ProduceReport
from pipeline.source.options import Subscription
from rsm_backends.store_config import StoreConfig
from tests.e2e.test_sidecar_beside_kafka import TOPIC, Kept, Scene, assert_same, scene
from tests.e2e.writer import Writer
from tests.pipeline.export.test_export_job import committed_files, duckdb_table
from tests.real.kafka_clients import Isolation, consume_all
from tests.real.ports import ports_in_a_row
from tests.real.spark_kafka import spark_kafka_jars
from tests.real.spark_session import quick_session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PARTITIONS = 2
BROKER_ID = 1
ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class History:
    """What the broker had, and where it is now."""

    stage: Scene
    kept: list[Kept]
    ends: dict[int, int]
    of_the_broker: dict[Isolation, Rows]
    options: dict[str, str]
    read_replica: str


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with quick_session("e2e", "local[2]", folder, {"spark.jars": spark_kafka_jars()}) as session:
        yield session


@pytest.fixture(scope="module")
def history(
    tmp_path_factory: pytest.TempPathFactory, minio_store_config: StoreConfig, spark: SparkSession
) -> Iterator[History]:
    """Written with every codec, headers, nulls and transactions; tiered; gone from the broker."""
    home = tmp_path_factory.mktemp("pipeline")
    address = f"127.0.0.1:{ports_in_a_row(2 + BROKER_ID)}"
    with scene(
        home,
        minio_store_config,
        prefix="e2e/pipeline/",
        partitions=PARTITIONS,
        read={"listen": address},
    ) as stage:
        with Writer(stage.broker.bootstrap, TOPIC, PARTITIONS) as writer:
            stage.wait_for_copies(2)
        writer.write_filler()
        stage.wait_until_all_is_copied()
        kept = [stage.keep(number) for number in range(PARTITIONS)]
        ends = {number: each.active_base for number, each in enumerate(kept)}
        of_the_broker = {
            isolation: rows(from_kafka(spark, stage.broker.bootstrap, ends, isolation))
            for isolation in ISOLATIONS
        }
        stage.drop_locally(kept)
        yield History(stage, kept, ends, of_the_broker, node_options(stage), address)


def bucket_options(store: StoreConfig) -> dict[str, str]:
    address = f"s3://{store.bucket}/{store.prefix.rstrip('/')}"
    return {"strandline.store": address, **s3_access(store)}


def s3_access(store: StoreConfig) -> dict[str, str]:
    return {
        "strandline.s3.endpoint": str(store.endpoint_url),
        "strandline.s3.path-style": "true",
        "strandline.s3.access.key": str(store.access_key_id),
        "strandline.s3.secret.key": str(store.secret_access_key),
    }


def node_options(stage: Scene) -> dict[str, str]:
    """The node says what is where; of the store it knows everything but the keys."""
    bucket = bucket_options(stage.store)
    return {
        "strandline.url": stage.node.url,
        **{name: value for name, value in bucket.items() if name.endswith(".key")},
    }


def from_kafka(
    spark: SparkSession, bootstrap: str, ends: dict[int, int], isolation: Isolation
) -> DataFrame:
    """Spark's own source, with Kafka's Java consumer 3.9."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps({TOPIC: ends}))
        .option("kafka.isolation.level", isolation)
        .load()
    )


def rows(frame: DataFrame) -> Rows:
    """All columns, comparable, in the order of the partitions."""
    found = [
        (
            row.partition, row.offset, row.topic, _bytes(row.key), _bytes(row.value),
            row.timestamp, row.timestampType,
            None if row.headers is None else [(one.key, _bytes(one.value)) for one in row.headers],
        )
        for row in frame.collect()
    ]  # fmt: skip
    return sorted(found, key=lambda row: row[:2])


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.mark.parametrize("way", ["node", "bucket"])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_query_of_the_broker_gives_the_same_rows_of_the_tier(
    history: History, spark: SparkSession, isolation: Isolation, way: str
) -> None:
    where = history.options if way == "node" else bucket_options(history.stage.store)
    frame = (
        spark.read.format("strandline")
        .options(**where)
        .option("kafka.bootstrap.servers", history.stage.broker.bootstrap)
        .option("subscribe", TOPIC)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps({TOPIC: history.ends}))
        .option("isolation", isolation)
        .load()
    )
    broker = history.stage.broker.bootstrap
    assert frame.schema == from_kafka(spark, broker, history.ends, isolation).schema
    assert_same_rows(rows(frame), history.of_the_broker[isolation])


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_sparks_own_source_reads_the_same_rows_of_a_read_replica(
    history: History, spark: SparkSession, isolation: Isolation
) -> None:
    frame = from_kafka(spark, history.read_replica, history.ends, isolation)
    assert_same_rows(rows(frame), history.of_the_broker[isolation])


def assert_same_rows(found: Rows, expected: Rows) -> None:
    for ours, theirs in zip(found, expected, strict=False):
        assert ours == theirs
    assert len(found) == len(expected) > 0


def restored(
    history: History, spark: SparkSession, options: IntoKafka | IntoLogDirs
) -> ProduceReport | LogDirsReport:
    """One run of the job."""
    with closing(open_catalogue(history.options)) as catalogue:
        return run(JobContext(spark, history.options, catalogue, Console(stderr=True)), options)


def test_the_topic_is_produced_anew(history: History, spark: SparkSession, tmp_path: Path) -> None:
    bootstrap = history.stage.broker.bootstrap
    options = IntoKafka(
        wanted=Wanted(topic=TOPIC),
        address=KafkaAddress({"bootstrap.servers": bootstrap}),
        topic_as="voyages-again",
        mapping=tmp_path / "mapping.csv",
    )
    report = restored(history, spark, options)
    assert report.ok, list(report.lines())
    for number, kept in enumerate(history.kept):
        found = consume_all(bootstrap, "voyages-again", number, isolation="read_committed")
        assert_same(
            [one._replace(offset=0) for one in found],
            [one._replace(offset=0) for one in kept.committed],
        )
    lines = (tmp_path / "mapping.csv").read_text().splitlines()
    assert lines[0] == "partition,source_offset,target_offset,records"
    assert sum(int(line.split(",")[3]) for line in lines[1:]) == sum(
        len(kept.committed) for kept in history.kept
    )
    again = restored(history, spark, options)
    assert again.ok
    assert isinstance(again, ProduceReport)
    assert [each.records for each in again.partitions] == [0] * PARTITIONS


def exported(history: History, spark: SparkSession, **wanted: Any) -> None:
    """One run of the job, over the node's catalogue; S3 targets are in the tier's MinIO."""
    options = history.options | s3_access(history.stage.store)
    with closing(open_catalogue(options)) as catalogue:
        context = JobContext(spark, options, catalogue, Console(stderr=True))
        given = ExportOptions(subscription=Subscription((TOPIC,)), **wanted)
        report = run_export(context, given)
    assert report.ok, list(report.lines())


def rows_of_table(table: pa.Table) -> Rows:
    """As `rows`: times as Spark gives them, in this machine's zone and without it."""
    found = [
        (
            row["partition"], row["offset"], row["topic"], row["key"], row["value"],
            row["timestamp"].astimezone().replace(tzinfo=None), row["timestampType"],
            # pyiceberg 0.12 gives an empty list where a list of structs is NULL.
            [(one["key"], one["value"]) for one in row["headers"] or ()] or None,
        )
        for row in table.to_pylist()
    ]  # fmt: skip
    return sorted(found, key=lambda row: row[:2])


def test_exports_to_each_kind_of_table_hold_the_rows_of_the_broker(
    history: History, spark: SparkSession, tmp_path: Path
) -> None:
    store = history.stage.store
    expected = history.of_the_broker["read_committed"]
    assert any(row[7] for row in expected)
    assert any(row[3] is None for row in expected)

    exported(history, spark, to=str(tmp_path / "files"))
    assert rows_of_table(duckdb_table(committed_files(tmp_path / "files"))) == expected

    delta = f"s3://{store.bucket}/e2e/lake/voyages"
    exported(history, spark, to=delta, table_format="delta", by_day=True)
    access = delta_storage_options(store)
    assert rows_of_table(DeltaTable(delta, storage_options=access).to_pyarrow_table()) == expected

    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{store.bucket}/e2e/warehouse",
    }
    exported(
        history,
        spark,
        to="lake.voyages",
        table_format="iceberg",
        by_day=True,
        catalog="e2e",
        catalog_properties=properties,
    )
    files = iceberg_file_properties(s3_access(store), {})
    table = open_catalog("e2e", {**files, **properties}).load_table("lake.voyages")
    assert rows_of_table(table.scan().to_arrow()) == expected


def test_the_logs_of_a_stopped_broker_are_filled_and_it_serves_the_same_offsets(
    history: History, spark: SparkSession
) -> None:
    broker = history.stage.broker
    broker.create_topic("voyages-logs", partitions=PARTITIONS, config={"retention.ms": "-1"})
    broker.stop()
    options = IntoLogDirs(
        wanted=Wanted(topic=TOPIC), log_dirs=[broker.log_dir], topic_as="voyages-logs"
    )
    report = restored(history, spark, options)
    assert report.ok
    for number, kept in enumerate(history.kept):
        logs = sorted((broker.log_dir / f"voyages-logs-{number}").glob("*.log"))
        same_bytes = b"".join(path.read_bytes() for path in logs) == kept.sealed
        assert same_bytes
    broker.start()
    for number, kept in enumerate(history.kept):
        assert_same(consume_all(broker.bootstrap, "voyages-logs", number), kept.uncommitted)
        assert_same(
            consume_all(broker.bootstrap, "voyages-logs", number, isolation="read_committed"),
            kept.committed,
        )
