"""Queries and jobs while executors and workers are killed; code and keys shipped as users do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pipeline.export.iceberg_table import open_catalog
from rsm_backends.store_config import StoreConfig
from tests.capture.captured import expected_records
from tests.pipeline.cluster.held_jobs import (
    CORES,
    EXECUTORS,
    EXPORTS,
    GROUPS,
    HELD,
    PARTS,
    iceberg_options,
)
from tests.pipeline.cluster.held_tasks import SENT_BEFORE_THE_HOLD
from tests.pipeline.export.killed_driver import TOPIC
from tests.pipeline.export.test_export_job import committed_files, duckdb_table
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.pipeline.restore.captured_tier import LOG_DIR
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import consume_all
from tests.real.process_tree import kill_tree
from tests.real.s3_admin import client
from tests.real.spark_cluster import EXECUTOR_MB, SparkCluster
from tests.real.spark_jvm import linked_spark_home, quick_start

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("driver.py")
DEADLINE_S = 270
PARTITIONS = 3


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> FolderTier:
    folder = tmp_path_factory.mktemp("tier") / "bucket"
    folder.mkdir()
    return tier_log_dir(LOG_DIR, folder, TOPIC)


@pytest.fixture(scope="module")
def bucket(tier: FolderTier, minio_store_config: StoreConfig) -> StoreConfig:
    """The same objects in MinIO."""
    (config,) = tier.stores.values()
    s3 = client(minio_store_config)
    for path in sorted(tier.folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            key = path.relative_to(tier.folder).as_posix()
            s3.put_object(Bucket=minio_store_config.bucket, Key=key, Body=path.read_bytes())
    s3.close()
    return replace(minio_store_config, prefix=config.prefix)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """The cluster that is restored into."""
    with KafkaBroker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    return linked_spark_home(tmp_path / "spark-home")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executors' wheel, under the name that Spark takes."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=LOG_DIR.parents[3] / "executors",
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel.rename(folder / "strandline_executors.zip")


class Program:
    """driver.py under spark-submit. `kill` is called once in the middle of each of its parts."""

    def __init__(self, folder: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self._folder = folder
        for part in PARTS:
            (folder / part).mkdir(parents=True)
        self._log = folder / "driver.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=dict(environment), stdout=subprocess.PIPE, stderr=log
            )

    def held(self, part: str, executors: int) -> set[int]:
        """The processes in which tasks of a part stand still, once there are so many."""
        ends_at = time.monotonic() + DEADLINE_S
        while len(found := list((self._folder / part).glob("held-*"))) < executors:
            assert self.process.poll() is None, self._log.read_text()[-4_000:]
            assert time.monotonic() < ends_at, self._log.read_text()[-4_000:]
            time.sleep(0.05)
        return {int(path.name.partition("-")[2]) for path in found}

    def let_go(self, part: str) -> None:
        """The held tasks go on."""
        (self._folder / part / "go").touch()

    def result(self) -> dict[str, Any]:
        """What it printed."""
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, self._log.read_text()[-4_000:]
        found = json.loads(output.splitlines()[-1])
        assert isinstance(found, dict)
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def started(
        *submit: str,
        options: Mapping[str, str],
        spark_home: Path,
        python: Path,
        environment: Mapping[str, str],
        more: tuple[object, ...] = (),
    ) -> Program:
        signals = tmp_path / f"signals-{len(programs)}"
        signals.mkdir()
        command = [
            *(str(spark_home / "bin" / "spark-submit"), *submit),
            *(f"--conf={name}={value}" for name, value in quick_start().items()),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *(str(DRIVER), str(signals), json.dumps(dict(options))),
            *map(str, more),
        ]
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
        }
        program = Program(signals, command, own | dict(environment))
        programs.append(program)
        return program

    yield started
    for program in programs:
        if program.process.poll() is None:
            kill_tree(program.process.pid)
        program.process.wait()
        assert program.process.stdout is not None
        program.process.stdout.close()


def query(store: str, more: Mapping[str, str]) -> dict[str, str]:
    return {"strandline.store": store, "subscribe": TOPIC, "minPartitions": "8", **more}


def check_rows(told: Mapping[str, Any], tier: FolderTier) -> None:
    """Every record once, of the query and of the job."""
    rows = [tuple(row) for row in told["query"]]
    ends = [tier.segments(TOPIC, number)[-1].end_offset + 1 for number in range(PARTITIONS)]
    assert rows == [(number, at) for number, end in enumerate(ends) for at in range(end)]
    assert told["job"] == len(rows)


def check_table(folder: Path, report: Mapping[str, Any], rows: list[list[int]]) -> None:
    """Every record once, in files of which the table names each one."""
    if (folder / "_delta_log").exists():
        table = DeltaTable(str(folder))
        named, found = table.file_uris(), table.to_pyarrow_table()
    elif (folder / "catalog.db").exists():
        wanted = iceberg_options(folder)
        catalog = open_catalog(wanted["catalog"], wanted["catalog_properties"])
        iceberg = catalog.load_table(wanted["to"])
        named = iceberg.inspect.files()["file_path"].to_pylist()
        found = iceberg.scan().to_arrow()
    else:
        named = committed_files(folder)
        found = duckdb_table(named)
    offsets = [[row["partition"], row["offset"]] for row in found.to_pylist()]
    assert sorted(offsets) == rows
    there = {path.resolve() for path in folder.rglob("strandline-*.parquet")}
    assert there == {Path(each.removeprefix("file://")).resolve() for each in named}
    assert report["rows"] == len(rows)
    assert report["removed_files"] > 0, "the killed executor's file"


def check_restored(bootstrap: str, report: Mapping[str, Any], ends: list[int]) -> None:
    """Every record once, and what the killed attempt had sent and not committed is no record."""
    assert [each["difference"] for each in report["partitions"]] == [None] * PARTITIONS
    aborted = []
    for each, end in zip(report["partitions"], ends, strict=True):
        number = each["partition"]
        committed = consume_all(bootstrap, TOPIC, number, isolation="read_committed")
        assert [found[1:] for found in committed] == [
            (one.timestamp_ms, one.key, one.value, one.headers)
            for one, is_committed in expected_records(f"{TOPIC}-{number}")
            if is_committed and one.offset < end
        ]
        if each["resumed_from"] is None:
            assert len(consume_all(bootstrap, TOPIC, number)) == len(committed)
        else:
            assert each["source_start"] < each["resumed_from"] < each["source_end"]
            aborted.append(len(consume_all(bootstrap, TOPIC, number)) - len(committed))
    assert SENT_BEFORE_THE_HOLD in aborted


def check_reconciled(folder: Path, report: Mapping[str, Any], keys: set[str], live: int) -> None:
    """Every object once, as it was listed before the kill; nothing of Spark's is left."""
    counts = {name: found["count"] for name, found in report["objects"].items() if found["count"]}
    assert counts == {"live": live, "foreign": len(keys) - live}
    assert report["segments"]["missing"]["count"] == 0
    listed = duckdb.sql(f"select key from '{folder}/*.parquet'").fetchall()
    assert sorted(key for (key,) in listed) == sorted(keys)
    assert {path.suffix for path in folder.iterdir() if path.is_file()} <= {".parquet", ".crc", ""}
    assert not (folder / "_temporary").exists()


@pytest.mark.soak
def test_an_executor_killed_in_a_query_and_in_any_job_changes_no_result(
    tier: FolderTier,
    start: Callable[..., Program],
    spark_home: Path,
    tmp_path: Path,
    broker: KafkaBroker,
) -> None:
    (config,) = tier.stores.values()
    objects = [path for path in tier.folder.rglob("*") if path.is_file()]
    keys = {path.relative_to(tier.folder).as_posix() for path in objects}
    late = tier.folder / config.prefix / "put-behind-the-listing.txt"
    written = tmp_path / "written"
    program = start(
        *("--master", f"local-cluster[{EXECUTORS},{CORES},{EXECUTOR_MB}]"),
        *("--conf", f"spark.executor.memory={EXECUTOR_MB}m"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
        *("--conf", "spark.python.daemon.module=tests.pipeline.cluster.loaded_daemon"),
        # What a dead executor kept is asked for again and again otherwise, for 15 s.
        *("--conf", "spark.shuffle.io.maxRetries=1", "--conf", "spark.shuffle.io.retryWait=100ms"),
        # What the driver asks a dead executor is given up after this, which is 120 s otherwise.
        *("--conf", "spark.network.timeout=60s"),
        options=query(f"file://{tier.folder}?prefix={config.prefix}", {}),
        spark_home=spark_home,
        python=Path(sys.executable),
        environment={"PYTHONPATH": str(LOG_DIR.parents[3])},
        more=(written, broker.bootstrap),
    )
    for group in GROUPS:
        victim = min(set.intersection(*(program.held(part, HELD[part]) for part in group)))
        if "reconcile" in group:
            late.write_bytes(b"a list that is made anew would have it")
        kill_tree(victim)
        for part in group:
            program.let_go(part)
    told = program.result()
    check_rows(told, tier)
    for part in EXPORTS:
        check_table(written / part, told[part], told["query"])
    segments = sum(map(len, tier.found.values()))
    scrubbed = told["scrub"]
    assert [scrubbed[each] for each in ("segments", "damaged", "unread")] == [segments, 0, 0]
    ends = [tier.segments(TOPIC, number)[-1].end_offset + 1 for number in range(PARTITIONS)]
    check_restored(broker.bootstrap, told["restore"], ends)
    counted = {each["topic"]: each for each in told["usage"]["topics"]}
    assert (counted[TOPIC]["segments"], counted[TOPIC]["objects"]) == (segments, 3 * segments)
    assert counted[TOPIC]["size_bytes"] == sum(
        path.stat().st_size for path in objects if f"/{TOPIC}-" in str(path)
    )
    # Copies for tests have the same id at the same offset of each partition: some are left out.
    rebuilt = told["rebuild"]
    left_out = sum(each["segments"] for each in rebuilt["left_out"].values())
    assert rebuilt["segments"] + left_out == segments
    check_reconciled(written / "verdicts", told["reconcile"], keys, 3 * rebuilt["segments"])


def test_shipped_code_and_keys_reach_a_standalone_cluster_that_loses_a_worker(
    tmp_path: Path,
    tier: FolderTier,
    bucket: StoreConfig,
    shipped: Path,
    start: Callable[..., Program],
    spark_home: Path,
) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": str(bucket.access_key_id),
        "AWS_SECRET_ACCESS_KEY": str(bucket.secret_access_key),
    }
    with SparkCluster(tmp_path / "cluster") as cluster:
        program = start(
            *("--master", cluster.master, "--py-files", str(shipped)),
            *("--executor-memory", f"{EXECUTOR_MB}m"),
            # A source that registers itself is read by functions that know no --py-files.
            f"--conf=spark.executorEnv.PYTHONPATH={shipped.name}",
            *(f"--conf=spark.executorEnv.{name}={value}" for name, value in keys.items()),
            options=query(
                f"s3://{bucket.bucket}/{bucket.prefix.rstrip('/')}",
                {
                    "strandline.s3.endpoint": str(bucket.endpoint_url),
                    "strandline.s3.path-style": "true",
                },
            ),
            spark_home=spark_home,
            python=cluster.python,
            environment=keys,
        )
        program.held("query", 2)
        cluster.kill_worker(0)
        program.let_go("query")
        program.held("job", 1)
        program.let_go("job")
        told = program.result()
    check_rows(told, tier)
    assert told["master"] == cluster.master
    assert "strandline_executors.zip" in told["code"]
    assert keys["AWS_SECRET_ACCESS_KEY"] not in (tmp_path / "signals-0" / "driver.log").read_text()
