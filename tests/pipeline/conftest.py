"""One Spark session for all tests that one process runs: it takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.real.spark_session import quick_session
from tests.real.toolbox import require_program


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, four tries a task, no pages, nothing left behind."""
    require_program("java")
    folder = tmp_path_factory.mktemp("spark")
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with quick_session("tests", "local[2,4]", folder, conf) as session:
        yield session
