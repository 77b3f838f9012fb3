"""A snapshot's rows come to the driver in the order of their keys' bytes."""

from __future__ import annotations

from hashlib import sha256

import pytest
from pyspark.sql import SparkSession

from pipeline.rebuild.ordered_rows import rows_in_key_order
from pipeline.rebuild.partition_group import ROWS_SCHEMA

ROWS = 25_000


@pytest.mark.spark
@pytest.mark.parametrize("parts", [1, 3])
def test_all_rows_with_a_key_come_in_its_order(spark: SparkSession, parts: int) -> None:
    keys = [sha256(str(number).encode()).digest()[: 1 + number % 40] for number in range(ROWS)]
    rows = {key: key[::-1] for key in keys}
    told = [(None, None, "{}")]
    frame = spark.createDataFrame([*((*row, None) for row in rows.items()), *told], ROWS_SCHEMA)
    assert list(rows_in_key_order(frame.repartition(4), parts)) == sorted(rows.items())


@pytest.mark.spark
def test_no_rows_are_no_rows(spark: SparkSession) -> None:
    assert list(rows_in_key_order(spark.createDataFrame([], ROWS_SCHEMA), 2)) == []
