"""A bucket with everything in it that there can be, against a metadata snapshot."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path
from platform import node
from typing import Any
from unittest import mock

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.jobs import reconcile as job
from pipeline.jobs.frame_errors import our_errors
from pipeline.jobs.job import JobContext
from pipeline.jobs.reconcile import ReconcileOptions, ReconcileReport, check_options, run
from pipeline.reconcile.known_rows import known_of_snapshot
from pipeline.reconcile.tally import EXAMPLES_MAX, Found, tally
from pipeline.stores.opened_store import opened
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import ObjectSuffix, segment_keys
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import SnapshotId
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows import keys
from rlmm.rows.snapshot_rows import to_proposals
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from rsm_backends.store_config import StoreConfig

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
NOW_MS = 1_800_000_000_000
PARTITION = TopicIdPartition("orders", Uuid(b"t" * 16), 0)
SIZES = {ObjectSuffix.LOG: 30, ObjectSuffix.INDEXES: 20, ObjectSuffix.MANIFEST: 10}


def options(**given: Any) -> ReconcileOptions:
    plain = {
        "node": None, "snapshot": None, "table": None, "csv": False, "apply": False,
        "accept_objects": 0, "now_ms": lambda: NOW_MS, "wait": lambda _: None,
    }  # fmt: skip
    return ReconcileOptions(**(plain | given))


def reconcile(spark: SparkSession, tier: Path, **given: Any) -> ReconcileReport:
    store = {"strandline.store": tier.as_uri()}
    console = Console(file=StringIO())
    return run(JobContext(spark, store, open_catalogue(store, {}), console), options(**given))


def segment(number: int, state: SegmentState, event_ms: int = NOW_MS) -> RemoteLogSegmentMetadata:
    finished = state is not SegmentState.COPY_SEGMENT_STARTED
    custom = CustomMetadata("main", 30, 1, 20, 2, 10, 3).encode()
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
        number * 10, number * 10 + 9, 1, 1, event_ms, ((0, number * 10),), 30,
        custom if finished else None, state, finished_at=5 if finished else -1,
    )  # fmt: skip


def put(tier: Path, id_: RemoteLogSegmentId, start: int, *suffixes: ObjectSuffix) -> None:
    stem = segment_keys("", id_, start).log.removesuffix("log")
    for suffix in suffixes or tuple(ObjectSuffix):
        path = tier / f"{stem}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(SIZES[suffix]))


def start_uploads(tier: Path, keys: list[str]) -> None:
    async def start() -> None:
        async with opened(StoreConfig(name="main", kind="filesystem", path=tier)) as store:
            for key in keys:
                await store.start_multipart(key)

    asyncio.run(start())


def snapshot(folder: Path, rows: list[RemoteLogSegmentMetadata], buried: Uuid) -> Path:
    found = {keys.segment_key(each.segment_id.id): encode_segment_row(each) for each in rows}
    found[keys.segment_tombstone_key(buried)] = keys.partition_bytes(PARTITION)
    writer = SnapshotWriter(
        OsDisk(), folder, SnapshotId(9, 1), last_contained_timestamp_ms=0, voters=()
    )
    writer.add(to_proposals(sorted(found.items())))
    return writer.finish()


def test_every_object_has_the_class_that_the_collector_would_give_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    tier = tmp_path / "tier"
    whole, gone, short = (segment(n, SegmentState.COPY_SEGMENT_FINISHED) for n in (1, 2, 3))
    copying = segment(4, SegmentState.COPY_SEGMENT_STARTED)
    going = segment(5, SegmentState.DELETE_SEGMENT_STARTED)
    went = segment(6, SegmentState.DELETE_SEGMENT_STARTED, NOW_MS - 10_000_000)
    rows = [whole, gone, short, copying, going, went]
    for each in (whole, copying, going, went):
        put(tier, each.segment_id, each.start_offset)
    put(tier, short.segment_id, short.start_offset, ObjectSuffix.LOG, ObjectSuffix.MANIFEST)
    put(tier, whole.segment_id, 777)  # our id under another name
    buried = RemoteLogSegmentId(PARTITION, Uuid(b"b" * 16))
    put(tier, buried, 60, ObjectSuffix.LOG)
    unknown = RemoteLogSegmentId(PARTITION, Uuid(b"u" * 16))
    put(tier, unknown, 70, ObjectSuffix.LOG)
    (tier / "_strandline").mkdir()
    (tier / "_strandline" / "cluster.json").write_bytes(b"{}")
    (tier / "notes ü.txt").write_bytes(b"hello")
    nowhere = RemoteLogSegmentId(PARTITION, Uuid(b"n" * 16))  # without a row, without an object
    begun = {
        each: segment_keys("", each, start).log
        for each, start in ((unknown, 70), (nowhere, 80), (went.segment_id, went.start_offset),
                            (copying.segment_id, copying.start_offset))
    }  # fmt: skip
    start_uploads(tier, [*begun.values(), "_strandline/snapshots/1", "theirs.bin"])
    table = tmp_path / "verdicts"
    report = reconcile(spark, tier, snapshot=snapshot(tmp_path, rows, buried.id), table=str(table))
    assert {name: found.count for name, found in report.objects.items()} == {
        "live": 5, "copy_pending": 3, "delete_pending": 3, "orphan": 4, "foreign": 5, "own": 1,
    }  # fmt: skip
    assert report.objects["orphan"].size_bytes == 90
    missing = report.segments["missing"]
    assert missing.count == 2
    assert [
        each.partition(", segment")[0].partition("orders-0 ")[2] for each in missing.examples
    ] == ["offsets 20 to 29", "offsets 30 to 39"]
    assert ".indexes is gone" in missing.examples[1]
    assert report.segments["incomplete"].count == 1
    assert not report.ok
    assert (report.rows, report.uncompared, report.uploads.count) == (6, 0, 3)
    counted = duckdb.sql(
        f"select class, count(*) from '{table}/*.parquet' group by class"
    ).fetchall()
    told = {name: found.count for name, found in report.objects.items() if found.count}
    assert dict(counted) == told | {"foreign": told["foreign"] - 1, "incomplete": 1, "upload": 3}
    uploads = duckdb.sql(f"select key from '{table}/*.parquet' where class = 'upload'").fetchall()
    assert {key for (key,) in uploads} == set(begun.values()) - {begun[copying.segment_id]}
    assert "DATA IS GONE" in "\n".join(report.lines())
    json.dumps(report.as_json())


def test_what_a_run_that_failed_had_listed_is_not_what_the_next_one_sees(
    spark: SparkSession, tmp_path: Path
) -> None:
    tier = tmp_path / "tier"
    row = segment(1, SegmentState.COPY_SEGMENT_FINISHED)
    put(tier, row.segment_id, row.start_offset, ObjectSuffix.LOG)
    file = snapshot(tmp_path, [row], Uuid(b"b" * 16))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptData) as told:
        reconcile(spark, tier, snapshot=file)
    assert (Path(told.value.source).name, told.value.position > 0) == (file.name, True)
    assert told.value.detail in str(told.value)
    file.write_bytes(whole)
    put(tier, row.segment_id, row.start_offset)
    report = reconcile(spark, tier, snapshot=file)
    assert (report.objects["live"].count, report.segments["missing"].count) == (3, 0)


def test_a_class_is_told_by_its_first_names_whichever_task_had_them(spark: SparkSession) -> None:
    names = f.format_string("%03d", 99 - f.col("id")).alias("name")
    frame = spark.range(0, 100, 1, 4).select(f.lit("orphan").alias("class"), names, "id")
    found = tally(frame.withColumnRenamed("id", "size"), ["live", "orphan"])
    first = [f"{number:03}" for number in range(EXAMPLES_MAX)]
    assert found == {"live": Found(), "orphan": Found(100, sum(range(100)), first)}


def test_what_it_is_to_be_compared_with_has_to_be_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="name a node"):
        reconcile(spark, tmp_path)
    with pytest.raises(InvalidRequest, match="whose collector deletes"):
        reconcile(spark, tmp_path, snapshot=tmp_path / "x", apply=True)


def test_a_snapshot_that_cannot_be_read_is_named_before_spark_starts(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "gone", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InvalidRequest, match=f"^--snapshot: {path} can't be read: {why}"):
            check_options(options(snapshot=path))


def test_a_snapshot_that_only_the_driver_can_read_is_told_by_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
    gone = known_of_snapshot(spark, tmp_path / "gone")
    told = pytest.raises(NotFound, match=f"gone can't be read on {node()}: No such file")
    with told, our_errors():
        gone.count()


def test_a_snapshot_is_looked_for_where_the_driver_stands(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = snapshot(tmp_path, [segment(1, SegmentState.COPY_SEGMENT_FINISHED)], Uuid(b"b" * 16))
    monkeypatch.chdir(tmp_path)
    assert known_of_snapshot(spark, Path(file.name)).count() == 2


@pytest.mark.parametrize("csv", [False, True])
def test_a_table_that_is_there_is_refused_before_the_bucket_is_listed(
    spark: SparkSession, tmp_path: Path, csv: bool
) -> None:
    row = segment(1, SegmentState.COPY_SEGMENT_FINISHED)
    given = {"snapshot": snapshot(tmp_path, [row], Uuid(b"b" * 16)), "csv": csv}
    put(tmp_path / "tier", row.segment_id, row.start_offset)
    left = tmp_path / "what a killed run left"
    (left / "_temporary" / "0").mkdir(parents=True)
    listed = mock.patch.object(job, "listed_objects", side_effect=AssertionError("listed"))
    with listed, pytest.raises(InvalidRequest, match="killed run left: a folder or file") as told:
        reconcile(spark, tmp_path / "tier", table=str(left), **given)
    assert told.value.field == "--table"
    assert "name a new one, or remove it" in str(told.value)
    reconcile(spark, tmp_path / "tier", table=str(tmp_path / "new"), **given)
    assert (tmp_path / "new" / "_SUCCESS").exists()
