"""The versions of Spark that are taken, and where another is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyspark
import pytest
from pyspark.sql.types import StructType

from kafka_formats.errors import InvalidRequest
from pipeline.source.data_source import StrandlineDataSource
from pipeline.spark.spark_version import check_spark_version

OLDER_SPARK = """
import pyspark
from pyspark.sql import datasource

pyspark.__version__ = "4.0.1"
for name in ("EqualNullSafe", "EqualTo", "Filter", "In", "Not"):
    delattr(datasource, name)
from pyspark_strandline import DefaultSource

DefaultSource({"subscribe": "orders"}).schema()
"""


@pytest.mark.parametrize("version", ["3.5.6", "4.0.4", "4.4.0", "5.0.0.dev1"])
def test_another_spark_is_refused_by_its_version(version: str) -> None:
    with pytest.raises(InvalidRequest, match=version):
        check_spark_version(version)


@pytest.mark.parametrize("version", ["4.1.0", "4.2.0.dev1", "4.3.7"])
def test_a_supported_spark_is_taken(version: str) -> None:
    check_spark_version(version)


@pytest.mark.parametrize(
    "ask",
    [
        lambda source: source.schema(),
        lambda source: source.reader(StructType()),
        lambda source: source.streamReader(StructType()),
    ],
    ids=["schema", "batch", "stream"],
)
def test_the_data_source_refuses_another_spark_whatever_it_is_asked(
    ask: Callable[[StrandlineDataSource], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    with pytest.raises(InvalidRequest, match=r"Spark 4\.4\.0 is not supported: install pyspark>="):
        ask(StrandlineDataSource({"subscribe": "orders"}))


def test_a_spark_that_lacks_what_readers_need_is_refused_by_its_version_too() -> None:
    done = subprocess.run([sys.executable, "-c", OLDER_SPARK], capture_output=True, text=True)
    assert "Spark 4.0.1 is not supported" in done.stderr
