"""Segments of a real broker exported on Spark: tables hold what a consumer read of the topics."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from select import select

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.errors import InvalidRequest, NotFound
from pipeline.export.export_plan import OffsetRange
from pipeline.export.file_names import run_of_data_file
from pipeline.export.iceberg_table import open_catalog
from pipeline.export.target_folder import TargetFolder
from pipeline.export.target_options import target_config
from pipeline.jobs import export
from pipeline.jobs.job import JobContext
from pipeline.source.options import Subscription
from tests.capture.captured import expected_records
from tests.pipeline.export.killed_driver import TOPIC, export_options
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.real.toolbox import REPOSITORY

pytestmark = pytest.mark.spark

TOPICS = ("codecs", "orders", "payments")
PARTITIONS = ("codecs-0", "orders-0", "orders-1", "orders-2", "payments-0", "payments-1")
START_DEADLINE_S = 90


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    return asyncio.run(tier_captured(tmp_path_factory.mktemp("export") / "tier", *TOPICS))


@pytest.fixture
def context(spark: SparkSession, tier: CapturedTier) -> JobContext:
    return JobContext(spark, {}, tier, Console(stderr=True, quiet=True))


Row = tuple[str, int, bytes | None, bytes | None, object]


def as_rows(table: pa.Table) -> list[Row]:
    """By partition and offset, times in milliseconds left to the tests of the decoder."""
    found = [
        (
            f"{row['topic']}-{row['partition']}",
            row["offset"],
            row["key"],
            row["value"],
            # pyiceberg 0.12 gives an empty list where a list of structs is NULL.
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for row in table.to_pylist()
    ]
    return sorted(found, key=lambda row: row[:2])


def consumed(report: export.ExportReport, *partitions: str) -> list[Row]:
    """What a consumer of committed records read, up to where the export ended."""
    ended = {name.partition("(")[0]: end for name, end in report.ended.items()}
    return [
        (name, record.offset, record.key, record.value, tuple(record.headers))
        for name in partitions
        for record, committed in expected_records(name)
        if committed and record.offset < ended[name]
    ]


def committed_files(folder: Path) -> list[str]:
    """As docs/PIPELINE.md tells a reader to find them."""
    log = f"{folder}/_strandline/export/commits/*.json"
    found = duckdb.sql(f"select unnest(files).path from read_json('{log}')").fetchall()
    return [f"{folder}/{path}" for (path,) in found]


def duckdb_table(files: list[str]) -> pa.Table:
    listed = ", ".join(f"'{each}'" for each in files)
    found = duckdb.sql(f"select * from read_parquet([{listed}], hive_partitioning = false)").arrow()
    return found if isinstance(found, pa.Table) else found.read_all()


def test_each_table_reads_back_as_a_consumer_read_the_topics(
    context: JobContext, tmp_path: Path
) -> None:
    wanted = export.ExportOptions(to=str(tmp_path / "files"), subscription=Subscription(TOPICS))
    report = export.run(context, wanted)
    assert report.ok
    assert report.done.rows > 0
    rows = consumed(report, *PARTITIONS)
    assert as_rows(duckdb_table(committed_files(tmp_path / "files"))) == rows

    delta = export_options(
        tmp_path / "delta", table_format="delta", by_day=True, subscription=Subscription(TOPICS)
    )
    assert export.run(context, delta).ended == report.ended
    assert as_rows(DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()) == rows

    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    iceberg = export.ExportOptions(
        to="lake.records",
        table_format="iceberg",
        catalog="tests",
        catalog_properties=properties,
        by_day=True,
        subscription=Subscription(pattern=".*"),
    )
    assert export.run(context, iceberg).ended == report.ended
    table = open_catalog("tests", properties).load_table("lake.records")
    assert as_rows(table.scan().to_arrow()) == rows
    assert export.run(context, iceberg).done.commits == []


def test_a_driver_killed_in_the_middle_and_run_again_is_exactly_once(
    context: JobContext, tmp_path: Path
) -> None:
    fifo, target = tmp_path / "fifo", tmp_path / "table"
    os.mkfifo(fifo)
    driver = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.pipeline.export.killed_driver",
            str(tmp_path / "tier"),
            str(target),
            str(fifo),
        ],
        cwd=REPOSITORY,
        start_new_session=True,
    )
    try:
        # Without blocking: a driver that does not come that far must not hang the test.
        fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb", buffering=0) as stands_still:
            while not select([stands_still], [], [], 0.2)[0]:
                assert driver.poll() is None, "the driver ended by itself"
            assert stands_still.read(1) == b"x"
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait(START_DEADLINE_S)
            # Each task that stands still wrote one; the end comes when their processes are gone.
            while stands_still.read(1) != b"":
                assert select([stands_still], [], [], START_DEADLINE_S)[0], "a task lives on"
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(START_DEADLINE_S)
    left = [path for path in target.rglob("*.parquet") if run_of_data_file(path.name, "export")]
    assert left
    assert DeltaTable(str(target)).to_pyarrow_table().num_rows == 0

    report = export.run(context, export_options(target, table_format="delta"))
    assert report.done.removed_files == len(left)
    table = DeltaTable(str(target))
    assert as_rows(table.to_pyarrow_table()) == consumed(report, *PARTITIONS[1:4])
    with TargetFolder(target_config(str(target), {}, {})) as folder:
        there = {each.key for each in folder.listed() if each.key.endswith(".parquet")}
        assert there == {uri.rpartition("/")[2] for uri in table.file_uris()}
        (watched,) = folder.listed("_strandline/export/runs/")
        assert watched.key.endswith(".settled"), "the killed run's tasks may write for a while"
    assert export.run(context, export_options(target, table_format="delta")).done.commits == []


def test_what_can_not_be_exported_is_named_before_anything_is_written(
    context: JobContext, tmp_path: Path
) -> None:
    target = tmp_path / "table"
    with pytest.raises(NotFound, match="absent"):
        export.run(context, export_options(target, subscription=Subscription(("absent",))))
    with pytest.raises(InvalidRequest, match="--first-offset: 1000000 is above all exportable"):
        export.run(context, export_options(target, offsets=OffsetRange(1_000_000)))
    with pytest.raises(InvalidRequest, match="--name"):
        export.run(context, export_options(target, name="No-Name"))
    with pytest.raises(InvalidRequest, match="--on-error"):
        export.run(context, export_options(target, on_error="skip"))
    assert TOPIC in TOPICS
    assert not target.exists()
