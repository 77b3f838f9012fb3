"""What a job is given and what it gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.catalogue.tiered_segment import Catalogue
from rsm_backends.store_config import StoreConfig


@dataclass(frozen=True)
class JobContext:
    """One run of a job. `options` are the store and node options that `stores` and `catalogue`
    were made of (pipeline/catalogue/store_options.py). `console` is where progress is drawn:
    standard error, so that a report on standard output stays whole.
    """

    spark: SparkSession
    options: Mapping[str, str]
    stores: Mapping[str, StoreConfig]
    catalogue: Catalogue
    console: Console


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
