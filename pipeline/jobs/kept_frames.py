"""Tables that a run looks at more than once: kept while it runs, and no longer.

Spark finds a kept table by its plan. One that an earlier run of the session left would be taken for
the next run's, however much has changed in bucket and metadata since.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel


class Keep(Protocol):
    """Keeps a table, once it is computed, on the executors' disks."""

    def __call__(self, frame: DataFrame, level: StorageLevel = StorageLevel.DISK_ONLY) -> DataFrame:
        """The table to go on with."""
        ...


@contextmanager
def kept_frames() -> Generator[Keep]:
    """What is kept goes with the block, whatever it ends with."""
    with ExitStack() as kept:

        def keep(frame: DataFrame, level: StorageLevel = StorageLevel.DISK_ONLY) -> DataFrame:
            frame = frame.persist(level)
            kept.callback(frame.unpersist)
            return frame

        yield keep
