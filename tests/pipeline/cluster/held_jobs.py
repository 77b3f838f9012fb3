"""Jobs whose first tasks stand still until somebody has killed what one of them runs on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.export.export_task import WriteFiles
from pipeline.jobs import export, rebuild, reconcile, restore, scrub, usage
from pipeline.jobs.job import JobContext, Report
from pipeline.jobs.tasks import run_tasks
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.restore import produce
from pipeline.restore.kafka_target import KafkaAddress, KafkaRecord, PartitionWriter, Progress
from pipeline.restore.ranges import Wanted
from pipeline.usage.prices import DEFAULT_PRICES, parse_prices
from rsm_backends.store_config import StoreConfig
from tests.pipeline.cluster.driver import DEADLINE_S, HELD_TASKS, hold
from tests.pipeline.export.killed_driver import TOPIC, export_options

TABLE_FORMATS = ("parquet", "delta", "iceberg")
EXPORTS = tuple(f"export-{each}" for each in TABLE_FORMATS)
PARTS = (*EXPORTS, "scrub", "restore", "usage", "rebuild", "reconcile")
EXECUTORS = 2
NOW_MS = 1_800_000_000_000
TRANSACTION_BYTES = 16_384
SENT_BEFORE_THE_HOLD = 3


def iceberg_options(folder: Path) -> dict[str, Any]:
    """The catalog of the tables in `folder`."""
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return {"to": "lake.orders", "catalog": "held", "catalog_properties": properties}


@dataclass(frozen=True)
class HeldJobs:
    """`folder` gets tables and snapshots; `bootstrap` is the cluster to restore into."""

    spark: SparkSession
    options: Mapping[str, str]
    signals: str
    folder: Path
    bootstrap: str

    def run(self) -> dict[str, Any]:
        """What each part reported, in the order of PARTS."""
        jobs: dict[str, Callable[[str, JobContext], Report]] = {
            **{f"export-{each}": partial(self.export, each) for each in TABLE_FORMATS},
            "scrub": self.scrub,
            "restore": self.restore,
            "usage": self.usage,
            "rebuild": self.rebuild,
            "reconcile": self.reconcile,
        }
        assert tuple(jobs) == PARTS
        told = {}
        for part, job in jobs.items():
            wait_for_executors(self.spark.sparkContext)
            told[part] = job(part, self._context()).as_json()
        return told

    def _context(self) -> JobContext:
        catalogue = open_catalogue(self.options)
        return JobContext(self.spark, self.options, catalogue, Console(file=sys.stderr))

    def export(self, table_format: str, part: str, context: JobContext) -> Report:
        read = partial(held_read, signals=self.signals, part=part)
        to = self.folder / part
        more = iceberg_options(to) if table_format == "iceberg" else {}
        wanted = export_options(to, table_format=table_format, **more)
        with mock.patch.object(export, "WriteFiles", partial(WriteFiles, read=read)):
            return export.run(context, wanted)

    def scrub(self, part: str, context: JobContext) -> Report:
        held = partial(run_held_tasks, signals=self.signals, part=part)
        with mock.patch.object(scrub, "run_tasks", held):
            return scrub.run(context, scrub.ScrubOptions(task_bytes=1))

    def restore(self, part: str, context: JobContext) -> Report:
        held = partial(held_produce, signals=self.signals, part=part)
        address = KafkaAddress({"bootstrap.servers": self.bootstrap})
        with mock.patch.object(restore, "produce_partition", held):
            return restore.run(context, restore.IntoKafka(Wanted(TOPIC), address))

    def usage(self, part: str, context: JobContext) -> Report:
        prices = parse_prices(DEFAULT_PRICES, source="defaults")
        with self._held_batches(part, "pipeline.listing.listed_objects", "_ListGroups"):
            return usage.run(context, usage.UsageOptions(prices, None, 0, 0, NOW_MS))

    def rebuild(self, part: str, context: JobContext) -> Report:
        with self._held_batches(part, "pipeline.rebuild.manifest_rows", "_ReadManifests"):
            return rebuild.run(context, rebuild.RebuildOptions(self.folder / "rebuilt"))

    def reconcile(self, part: str, context: JobContext) -> Report:
        """With the snapshot that was rebuilt."""
        (snapshot,) = (self.folder / "rebuilt").glob("*.checkpoint")
        wanted = reconcile.ReconcileOptions(
            None, snapshot, str(self.folder / "verdicts"), False, False, 0,
            lambda: NOW_MS, lambda _: None,
        )  # fmt: skip
        with self._held_batches(part, "pipeline.reconcile.judged", "_JudgeObjects"):
            return reconcile.run(context, wanted)

    def _held_batches(self, part: str, module: str, name: str) -> AbstractContextManager[Any]:
        def held(*arguments: Any) -> HeldBatches:
            return HeldBatches(self.signals, part, module, name, arguments)

        return mock.patch.object(import_module(module), name, held)


def wait_for_executors(context: SparkContext) -> None:
    """Until the one that was killed is replaced: a part has two of them."""
    ends_at = time.monotonic() + DEADLINE_S
    memory = context._jsc.sc().getExecutorMemoryStatus  # the driver is in it, too
    while memory().size() != EXECUTORS + 1:
        assert time.monotonic() < ends_at, "an executor did not come back"
        time.sleep(0.05)


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
class HeldBatches:
    """In place of a function over batches: stands still behind the last one of a task."""

    signals: str
    part: str
    module: str
    name: str
    arguments: tuple[Any, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # By its name: in the driver, which pickles this, something else stands there.
        original = getattr(import_module(self.module), self.name)
        yield from original(*self.arguments)(batches)
        hold_first(self.signals, self.part)


def held_produce(work: produce.PartitionRestore, *, signals: str, part: str) -> produce.Produced:
    """In place of `produce_partition`: stands still with records sent that are not committed,
    behind others that are.
    """
    writer = partial(HeldWriter, signals, part)
    with (
        mock.patch.object(produce, "TRANSACTION_BYTES", TRANSACTION_BYTES),
        mock.patch.object(produce, "PartitionWriter", writer),
    ):
        return produce.produce_partition(work)


class HeldWriter(PartitionWriter):
    """See `held_produce`."""

    def __init__(self, signals: str, part: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._held = partial(hold_first, signals, part)
        self._commits = self._sent = 0

    def commit(self, progress: Progress) -> None:
        super().commit(progress)
        self._commits += 1

    def send(self, record: KafkaRecord) -> None:
        super().send(record)
        self._sent += self._commits > 1  # the first one is there before any record
        if self._sent == SENT_BEFORE_THE_HOLD:
            self._producer.flush(DEADLINE_S)
            self._held()
