"""What a job is given and what it gives back."""

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
    """One run of a job. `options` are the store and node options that `catalogue` was made of
    (pipeline/catalogue/store_options.py); its `stores` are what tasks open. `console` is where
    progress is drawn: standard error, so that a report on standard output stays whole.
    """

    spark: SparkSession
    options: Mapping[str, str]
    catalogue: Catalogue
    console: Console

    def bar(self, what: str) -> AbstractContextManager[None]:
        """Progress of whatever Spark does in the block; see `stage_bar`."""
        return stage_bar(what, lambda: self.spark.sparkContext.statusTracker(), self.console)


class Report(Protocol):
    """What a job found or did."""

    @property
    def ok(self) -> bool:
        """Whether everything asked for was done, and nothing found that needs somebody."""
        ...

    def as_json(self) -> dict[str, object]:
        """For scripts: the same fields in every run."""
        ...

    def lines(self) -> Iterable[str]:
        """For people: what happened, and what to do about what did not."""
        ...
