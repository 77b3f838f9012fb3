"""PySpark's daemon, with all that its workers import loaded before it forks them: each of sixty
would take half a second for it.
"""

from __future__ import annotations

import gc
from importlib import import_module

import pandas as pd  # type: ignore[import-untyped]  # Spark's applyInArrow does
from pyspark import daemon, worker

from tests.pipeline.cluster import held_tasks
from tests.pipeline.cluster.test_executor_libraries import IN_TASKS

LOADED = (pd, worker, held_tasks, *(import_module(each) for each in IN_TASKS if "s3" not in each))

if __name__ == "__main__":
    gc.freeze()  # or each worker looks through, and copies, all of it behind each task
    daemon.manager()
