"""Jobs whose first tasks stand still until somebody has killed what one of them runs on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.export.export_task import WriteFiles
from pipeline.jobs import export, rebuild, reconcile, restore, scrub, usage
from pipeline.jobs.job import JobContext, Report
from pipeline.jobs.tasks import run_tasks
from pipeline.listing import store_calls
from pipeline.restore.kafka_target import KafkaAddress
from pipeline.restore.ranges import Wanted
from pipeline.usage.prices import DEFAULT_PRICES, parse_prices
from tests.pipeline.cluster import driver
from tests.pipeline.cluster.driver import DEADLINE_S
from tests.pipeline.cluster.held_tasks import HeldBatches, HeldWork, held_produce, held_read
from tests.pipeline.export.killed_driver import TOPIC, export_options

TABLE_FORMATS = ("parquet", "delta", "iceberg")
EXPORTS = tuple(f"export-{each}" for each in TABLE_FORMATS)
GROUPS = (("query", "job", "restore", "rebuild"), (*EXPORTS, "scrub", "usage", "reconcile"))
"""Parts that run side by side; one executor is killed under all of a group. What is rebuilt with
the first is reconciled with the second; of the two that may stand on one executor only, each has
one.
"""

PARTS = tuple(part for group in GROUPS for part in group)
EXECUTORS = 2
CORES = max(map(len, GROUPS)) + 1
"""Of an executor: one is free when each part of a group holds one."""

HELD: Mapping[str, int] = {**dict.fromkeys(PARTS, EXECUTORS), "restore": 1, "reconcile": 1}
"""On so many executors tasks of a part stand still. Those of a small join may be one; of a restore,
one a partition, all may run where others leave room.
"""

NOW_MS = 1_800_000_000_000
PART: ContextVar[str] = ContextVar("part")
"""What the thread runs."""


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
        """What each part gave."""
        told: dict[str, Any] = {}
        with ExitStack() as patched, ThreadPoolExecutor(len(PARTS)) as threads:
            for each in self._patches():
                patched.enter_context(each)
            for group in GROUPS:
                wait_until(self._executors_are_there, "the executors")
                running = {}
                for part in group:
                    running[part] = threads.submit(self._run, part)
                    # One after the other: where tasks of a part run is nobody else's doing then.
                    wait_until(partial(self._stands_still, part, running[part]), part)
                told |= {part: each.result() for part, each in running.items()}
        return told

    def _executors_are_there(self) -> bool:
        memory = self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
        return bool(memory.size() == EXECUTORS + 1)  # the driver is in it, too

    def _stands_still(self, part: str, running: Future[Any]) -> bool:
        if running.done():
            running.result()
            raise AssertionError(f"{part} is through, and nothing of it stood still")
        return len(list(Path(self.signals, part).glob("held-*"))) >= HELD[part]

    def _run(self, part: str) -> Any:
        PART.set(part)
        if part == "query":
            return driver.query(self.spark, self.options, self.signals)
        if part == "job":
            return driver.job(self.spark, self.options, self.signals)
        store = {name: value for name, value in self.options.items() if "strandline." in name}
        context = JobContext(self.spark, store, open_catalogue(store), Console(file=sys.stderr))
        if part in EXPORTS:
            return self._export(part, context).as_json()
        jobs: dict[str, Callable[[JobContext], Report]] = {
            "scrub": self._scrub,
            "restore": self._restore,
            "usage": self._usage,
            "rebuild": self._rebuild,
            "reconcile": self._reconcile,
        }
        return jobs[part](context).as_json()

    def _export(self, part: str, context: JobContext) -> Report:
        table_format = part.partition("-")[2]
        to = self.folder / part
        more = iceberg_options(to) if table_format == "iceberg" else {}
        return export.run(context, export_options(to, table_format=table_format, **more))

    def _scrub(self, context: JobContext) -> Report:
        return scrub.run(context, scrub.ScrubOptions(task_bytes=1))

    def _restore(self, context: JobContext) -> Report:
        address = KafkaAddress({"bootstrap.servers": self.bootstrap})
        return restore.run(context, restore.IntoKafka(Wanted(TOPIC), address))

    def _usage(self, context: JobContext) -> Report:
        prices = parse_prices(DEFAULT_PRICES, source="defaults")
        return usage.run(context, usage.UsageOptions(prices, None, 0, 0, NOW_MS))

    def _rebuild(self, context: JobContext) -> Report:
        return rebuild.run(context, rebuild.RebuildOptions(self.folder / "rebuilt"))

    def _reconcile(self, context: JobContext) -> Report:
        """With the snapshot that was rebuilt."""
        (snapshot,) = (self.folder / "rebuilt").glob("*.checkpoint")
        wanted = reconcile.ReconcileOptions(
            None, snapshot, str(self.folder / "verdicts"), False, False, 0,
            lambda: NOW_MS, lambda _: None,
        )  # fmt: skip
        return reconcile.run(context, wanted)

    def _patches(self) -> Iterator[AbstractContextManager[Any]]:
        def held_files(*arguments: Any) -> WriteFiles:
            read = partial(held_read, signals=self.signals, part=PART.get())
            return partial(WriteFiles, read=read)(*arguments)

        yield mock.patch.object(export, "WriteFiles", held_files)
        yield mock.patch.object(scrub, "run_tasks", partial(run_held_tasks, signals=self.signals))
        held = partial(held_produce, signals=self.signals)
        yield mock.patch.object(restore, "produce_partition", held)
        # Two objects are many: what lists the tier stands still on both executors.
        yield mock.patch.object(store_calls, "ONE_RANGE_KEYS_MAX", 1)
        yield self._held_batches("usage", "pipeline.listing.listed_objects", "_ListGroups")
        yield self._held_batches("rebuild", "pipeline.rebuild.manifest_rows", "_ReadManifests")
        yield self._held_batches("reconcile", "pipeline.reconcile.judged_objects", "_JudgeObjects")

    def _held_batches(self, part: str, module: str, name: str) -> AbstractContextManager[Any]:
        def held(*arguments: Any) -> HeldBatches:
            held_part = part if PART.get() == part else None
            return HeldBatches(self.signals, held_part, module, name, arguments)

        return mock.patch.object(import_module(module), name, held)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look again and again."""
    ends_at = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < ends_at, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.05)


def run_held_tasks(
    spark_context: Any, items: Any, work: Any, *, signals: str, **more: Any
) -> Iterator[Any]:
    """In place of `run_tasks`."""
    return run_tasks(spark_context, items, HeldWork(work, signals), **more)
