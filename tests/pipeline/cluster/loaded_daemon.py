"""PySpark's daemon, with all that its workers import loaded before it forks them: sixty of them
would take two seconds each for it.
"""

from __future__ import annotations

import gc

import pandas as pd  # type: ignore[import-untyped]
from pyspark import daemon, worker

from tests.pipeline.cluster import held_jobs

LOADED = (pd, worker, held_jobs)

if __name__ == "__main__":
    gc.freeze()  # or each worker looks through, and copies, all of it behind each task
    daemon.manager()
