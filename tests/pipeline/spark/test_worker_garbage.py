"""What Spark's workers keep is not looked through again after each task."""

from __future__ import annotations

import gc
import io
import os

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.jobs.tasks import run_tasks
from pipeline.spark.worker_garbage import begin_task


def set_aside(_: int) -> tuple[int, int]:
    return os.getpid(), gc.get_freeze_count()


@pytest.mark.spark
def test_a_worker_sets_aside_what_stays(spark: SparkSession) -> None:
    quiet = Console(file=io.StringIO())
    found = list(run_tasks(spark.sparkContext, range(24), set_aside, what="look", console=quiet))
    assert any(count for _, count in found), "of 24 tasks some worker has two"
    for worker in {process for process, _ in found}:
        counts = [count for process, count in found if process == worker and count]
        assert all(count > 10_000 for count in counts)
        # Some of it goes later.
        assert max(counts, default=0) - min(counts, default=0) < 1_000


def test_outside_of_a_task_nothing_is_set_aside() -> None:
    before = gc.get_freeze_count()
    for _ in range(3):
        begin_task()
    assert gc.get_freeze_count() == before
