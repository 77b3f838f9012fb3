"""The session, and the versions it takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from kafka_formats.errors import InvalidRequest
from pipeline.spark.session import (
    SHUFFLE_PARTITIONS,
    fit_shuffles,
    master_was_said,
    open_session,
    shuffle_partitions,
)
from pipeline.spark.worker_sockets import ENABLED, FOLDER, worker_sockets
from tests.real.spark_jvm import spark_class_data


def test_a_job_refuses_another_spark_before_it_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    with pytest.raises(InvalidRequest, match=r"Spark 4\.4\.0 is not supported"):
        open_session("refused")


@pytest.mark.spark
def test_times_are_utc_whatever_the_machine_says(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    row = spark.sql("SELECT timestamp_millis(0) = timestamp'1970-01-01 00:00:00'").head()
    assert row is not None
    assert row[0]


@pytest.mark.spark
def test_a_session_of_tests_has_its_classes_from_the_archive(spark: SparkSession) -> None:
    """A JVM that can't use it says nothing, and takes twice as long."""
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert str(spark_class_data()) in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize(
    ("master", "cores", "parts"),
    [
        ("local[2]", 2, "16"),
        ("local[*,4]", 64, "200"),
        ("local-cluster[2,1,1024]", 2, "16"),
        ("spark://host:7077", 2, None),
    ],
)
def test_a_shuffle_on_one_machine_ends_in_few_parts(
    master: str, cores: int, parts: str | None
) -> None:
    assert shuffle_partitions(master, cores) == parts


@pytest.mark.spark
def test_workers_are_reached_by_sockets_that_only_this_user_can_get_at(spark: SparkSession) -> None:
    def own_sockets(_: object) -> list[str]:
        opened = {Path(f"/proc/self/fd/{fd}").resolve().name for fd in range(256)}
        lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        return [line[7] for line in lines if line[7:] and f"socket:[{line[6]}]" in opened]

    folder = spark.sparkContext.getConf().get(FOLDER) or "not set"
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    paths = spark.sparkContext.parallelize([0], 1).flatMap(own_sockets).collect()
    assert [path for path in paths if path.startswith(folder)]


@pytest.mark.parametrize("master", ["", "yarn", "spark://host:7077", "k8s://host"])
def test_how_workers_elsewhere_are_spoken_to_is_left_to_spark(master: str) -> None:
    assert worker_sockets(master) == {}


def test_where_a_path_would_be_too_long_workers_are_spoken_to_as_spark_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert worker_sockets("local[2]") == {}
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    assert worker_sockets("local[2]")[ENABLED] == "true"


@pytest.mark.spark
def test_a_number_of_parts_that_was_said_is_kept(spark: SparkSession) -> None:
    """By `--conf` or a file: also Spark's own number, and also in a session of ours."""
    told = spark.conf.get(SHUFFLE_PARTITIONS) or ""
    assert told == spark.sparkContext.getConf().get(SHUFFLE_PARTITIONS)
    fit_shuffles(spark)
    assert spark.conf.get(SHUFFLE_PARTITIONS) == told


@pytest.mark.spark
def test_shuffles_of_a_session_that_runs_are_left_as_they_are(spark: SparkSession) -> None:
    told = spark.conf.get(SHUFFLE_PARTITIONS) or ""
    try:
        spark.conf.set(SHUFFLE_PARTITIONS, "200")
        assert open_session("second").conf.get(SHUFFLE_PARTITIONS) == "200"
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, told)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, False),
        ({"PYSPARK_GATEWAY_PORT": "4711"}, True),
        ({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, True),
        ({"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"}, False),
    ],
)
def test_the_master_that_spark_submit_was_given_is_kept(
    environment: dict[str, str], said: bool
) -> None:
    assert master_was_said(environment) is said
