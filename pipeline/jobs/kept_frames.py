"""Keeps tables that a run reads more than once, for as long as the run lasts.

Spark finds a kept table by its plan. A table left by an earlier run of the session would be used
for the next run, though bucket and metadata have changed since.
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
        """The kept table, to use instead of `frame`."""


@contextmanager
def kept_frames() -> Generator[Keep]:
    """Drops the kept tables at the end of the block, also after an error."""
    with ExitStack() as kept:

        def keep(frame: DataFrame, level: StorageLevel = StorageLevel.DISK_ONLY) -> DataFrame:
            frame = frame.persist(level)
            kept.callback(frame.unpersist)
            return frame

        yield keep
