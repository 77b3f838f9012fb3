"""One Spark session for all tests that one process runs: it takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import open_session
from tests.real.spark_jvm import quick_start, spark_home
from tests.real.toolbox import require_program


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, four tries a task, no pages, nothing left behind."""
    require_program("java")
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_HOME", str(spark_home()))
        session = _session(folder)
    yield session
    session.stop()


def _session(folder: Path) -> SparkSession:
    return open_session(
        "tests",
        master="local[2,4]",
        conf=quick_start()
        | {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
