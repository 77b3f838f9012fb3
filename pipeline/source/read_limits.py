"""Spark's admission control, which came with 4.2.

On an older Spark each batch of a stream takes everything available, and Spark itself carries out
`availableNow` by stopping after one such batch.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None
"""True if this Spark passes a limit when it asks for the next offset."""

if TYPE_CHECKING or ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    def default_limit(max_rows: int | None, min_rows: int | None) -> ReadLimit:
        """The limit that Spark passes with each question, unless a trigger asks for everything."""
        if max_rows is not None:
            return ReadMaxRows(max_rows)
        if min_rows is not None:
            return ReadMinRows(min_rows)
        return ReadAllAvailable()

    def takes_all(limit: ReadLimit | None) -> bool:
        """True if the options' limits do not apply to this batch."""
        return limit is None or isinstance(limit, ReadAllAvailable)

else:

    class SupportsTriggerAvailableNow:
        """A stand-in: Spark 4.1 has no such class."""

    def takes_all(limit: object) -> bool:  # noqa: ARG001
        """True always: Spark 4.1 has no limits."""
        return True


__all__ = ["ADMISSION_CONTROL", "SupportsTriggerAvailableNow", "default_limit", "takes_all"]
