"""The session, and the versions it takes."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from kafka_formats.errors import InvalidRequest
from pipeline.session import (
    SHUFFLE_PARTITIONS,
    master_was_said,
    open_session,
    shuffle_partitions,
)
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
    ("said", "master", "cores", "parts"),
    [
        ("200", "local[2]", 2, "16"),
        ("200", "local[*,4]", 64, "200"),
        ("200", "local-cluster[2,1,1024]", 2, "16"),
        ("200", "spark://host:7077", 2, "200"),
        ("7", "local[2]", 2, "7"),
    ],
)
def test_a_shuffle_on_one_machine_ends_in_few_parts(
    said: str, master: str, cores: int, parts: str
) -> None:
    assert shuffle_partitions(said, master, cores) == parts


@pytest.mark.spark
def test_shuffles_of_the_running_session_fit_it(spark: SparkSession) -> None:
    told = spark.conf.get(SHUFFLE_PARTITIONS) or ""
    try:
        spark.conf.set(SHUFFLE_PARTITIONS, "200")
        assert open_session("fits").conf.get(SHUFFLE_PARTITIONS) == "16"
        spark.conf.set(SHUFFLE_PARTITIONS, "3")
        assert open_session("fits").conf.get(SHUFFLE_PARTITIONS) == "3"
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
