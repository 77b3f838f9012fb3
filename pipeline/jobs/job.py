"""The input and the report of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.catalogue.tiered_segment import Catalogue
from pipeline.jobs.stage_bar import stage_bar


@dataclass(frozen=True)
class JobContext:
    """One run of a job. `options` are the store and node options that `catalogue` was made from
    (pipeline/catalogue/store_options.py); tasks open its `stores`. `console` shows progress, on
    standard error, so that a report on standard output stays whole.
    """

    spark: SparkSession
    options: Mapping[str, str]
    catalogue: Catalogue
    console: Console

    def bar(self, what: str) -> AbstractContextManager[None]:
        """Shows the progress of Spark's work in the block; see `stage_bar`."""
        return stage_bar(what, lambda: self.spark.sparkContext.statusTracker(), self.console)


class Report(Protocol):
    """The result of a job."""

    @property
    def ok(self) -> bool:
        """True if everything was done, and nothing found needs attention."""

    def as_json(self) -> dict[str, object]:
        """The report for scripts, with the same fields in every run."""

    def lines(self) -> Iterable[str]:
        """The report as text: results, problems, and what to do about them."""
