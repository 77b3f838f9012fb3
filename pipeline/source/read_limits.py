"""Spark's admission control, where there is one: it came with 4.2.

On an older Spark a stream takes all that is there in each batch, and knows no `availableNow` of its
own; Spark then stops after one such batch.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark asks for the next offset with a limit."""

if TYPE_CHECKING or ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    def default_limit(max_rows: int | None, min_rows: int | None) -> ReadLimit:
        """What Spark hands back with each question, unless the trigger asks for everything."""
        if max_rows is not None:
            return ReadMaxRows(max_rows)
        if min_rows is not None:
            return ReadMinRows(min_rows)
        return ReadAllAvailable()

    def takes_all(limit: ReadLimit | None) -> bool:
        """Whether the options' limits count for nothing in this batch."""
        return limit is None or isinstance(limit, ReadAllAvailable)

else:

    class SupportsTriggerAvailableNow:
        """Spark 4.1 asks for nothing of the kind."""

    def takes_all(limit: object) -> bool:  # noqa: ARG001
        """There are no limits."""
        return True


__all__ = ["ADMISSION_CONTROL", "SupportsTriggerAvailableNow", "default_limit", "takes_all"]
