"""A Spark session in the process of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.spark.session import open_session
from tests.real.spark_jvm import quick_start, spark_home


@contextmanager
def quick_session(
    name: str, master: str, folder: Path, conf: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Without pages, and with nothing left behind but in `folder`."""
    plain = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_HOME", str(spark_home()))
        session = open_session(name, master=master, conf={**quick_start(), **plain, **conf})
    yield session
    session.stop()
