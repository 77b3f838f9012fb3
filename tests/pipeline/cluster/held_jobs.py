"""Jobs whose first tasks stand still until somebody has killed what one of them runs on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.export.export_task import WriteFiles
from pipeline.jobs import export, rebuild, scrub
from pipeline.jobs.job import JobContext
from pipeline.jobs.tasks import run_tasks
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.rebuild import manifest_rows
from rsm_backends.store_config import StoreConfig
from tests.pipeline.cluster.driver import HELD_TASKS, hold
from tests.pipeline.export.killed_driver import export_options

TABLE_FORMATS = ("parquet", "delta")
PARTS = (*(f"export-{each}" for each in TABLE_FORMATS), "scrub", "rebuild")


def run_held(
    spark: SparkSession, options: Mapping[str, str], signals: str, folder: Path
) -> dict[str, Any]:
    """What each part reported; tables and snapshots are in `folder`."""
    console = Console(file=sys.stderr)
    told: dict[str, Any] = {}

    def context() -> JobContext:
        return JobContext(spark, options, open_catalogue(options), console)

    for table_format in TABLE_FORMATS:
        part = f"export-{table_format}"
        read = partial(held_read, signals=signals, part=part)
        with mock.patch.object(export, "WriteFiles", partial(WriteFiles, read=read)):
            wanted = export_options(folder / part, table_format=table_format)
            told[part] = export.run(context(), wanted).as_json()
    held_tasks = partial(run_held_tasks, signals=signals, part="scrub")
    with mock.patch.object(scrub, "run_tasks", held_tasks):
        told["scrub"] = scrub.run(context(), scrub.ScrubOptions(task_bytes=1)).as_json()
    held_manifests = partial(HeldManifests, signals, "rebuild")
    with mock.patch.object(manifest_rows, "_ReadManifests", held_manifests):
        wanted_snapshot = rebuild.RebuildOptions(folder / "rebuilt")
        told["rebuild"] = rebuild.run(context(), wanted_snapshot).as_json()
    return told


def hold_first(signals: str, part: str) -> None:
    """The first tasks that come here wait, each once."""
    for number in range(HELD_TASKS):
        try:
            Path(signals, part, f"taken-{number}").mkdir()
        except FileExistsError:
            continue
        hold(signals, part, number)
        return


def held_read(
    slices: Iterable[SegmentSlice],
    stores: Mapping[str, StoreConfig],
    settings: ReadSettings,
    *,
    signals: str,
    part: str,
) -> Iterator[pa.RecordBatch]:
    """Stands still behind the first records: a file has been begun."""
    for number, batch in enumerate(read_slices(slices, stores, settings)):
        yield batch
        if number == 0:
            hold_first(signals, part)


@dataclass(frozen=True)
class HeldWork:
    """Stands still when all is done, and nobody has been told."""

    work: Callable[[Any], Any]
    signals: str
    part: str

    def __call__(self, item: Any) -> Any:
        done = self.work(item)
        hold_first(self.signals, self.part)
        return done


def run_held_tasks(
    spark_context: Any, items: Any, work: Any, *, signals: str, part: str, **more: Any
) -> Iterator[Any]:
    """In place of `run_tasks`."""
    return run_tasks(spark_context, items, HeldWork(work, signals, part), **more)


@dataclass(frozen=True)
class HeldManifests:
    """In place of `_ReadManifests`: stands still behind the last manifest of a task."""

    signals: str
    part: str
    configs: Mapping[str, StoreConfig]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from manifest_rows._ReadManifests(self.configs)(batches)
        hold_first(self.signals, self.part)
