"""Export rates: tiered segments into Parquet, Delta and Iceberg on Spark, everything in memory.

`python -m bench.pipeline_export [SEGMENTS]` (16, of 64 MiB, in 4 partitions): 1 KB values that are
like JSON, batches of 100 KB, uncompressed and zstd; local[2]. A round exports all of it into a new
table, from planning to clean-up; before it, the tasks only read and decode, which is the ceiling.
Rates count the records' bytes before compression. The session is started and warm.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench.copy_log_dirs import TOPIC, write_log_dir
from bench.table import Measure, write_table
from kafka_formats.compression import Codec
from pipeline.export.export_plan import ExportTask, packed
from pipeline.jobs.export import ExportOptions, run
from pipeline.jobs.job import JobContext
from pipeline.jobs.tasks import run_tasks
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.source.options import Subscription
from pipeline.spark.session import open_session
from rsm_backends.store_config import StoreConfig
from tests.pipeline.read.folder_tier import tier_log_dir
from tests.pipeline.restore.captured_tier import CapturedTier

ROUNDS = 3
PARTITIONS = 4
SEGMENT_BYTES = 64 << 20
BATCH_BYTES = 100_000
TARGET_MB_S = 300.0


class ReadOnly:
    """The work of a task that reads and decodes, and does nothing with it."""

    def __init__(self, stores: dict[str, StoreConfig]) -> None:
        self._stores = stores

    def __call__(self, task: ExportTask) -> int:
        settings = ReadSettings(columns=(*ReadSettings().columns, "headers"))
        return sum(batch.num_rows for batch in read_slices(task.slices, self._stores, settings))


class Bench:
    """A tier of one codec, and what is done with it."""

    def __init__(self, folder: Path, codec: Codec, segments: int) -> None:
        logs = write_log_dir(
            folder / f"logs-{codec.name}",
            batch_bytes=BATCH_BYTES,
            segment_bytes=SEGMENT_BYTES,
            partitions=PARTITIONS,
            segments=segments // PARTITIONS,
            text=True,
            codec=codec,
        )
        tier = tier_log_dir(logs.path, folder / f"tier-{codec.name}")
        shutil.rmtree(logs.path)
        self.codec = codec
        self.catalogue = CapturedTier(tier.stores, tier.found)
        self.bytes = logs.segments * logs.batches_per_segment * BATCH_BYTES
        self.context = JobContext(
            open_session("bench", master="local[2]", conf={"spark.ui.enabled": "false"}),
            {},
            self.catalogue,
            Console(stderr=True, quiet=True),
        )
        self.ratio = 0.0
        self._folder = folder

    def read(self) -> float:
        slices = [
            SegmentSlice(segment, segment.first_offset, segment.last_offset)
            for segments in self.catalogue.found.values()
            for segment in segments
        ]
        work = ReadOnly(dict(self.catalogue.stores))
        tasks = list(packed(slices, 128 << 20))
        spark = self.context.spark.sparkContext
        return self._rate(
            lambda: sum(run_tasks(spark, tasks, work, what="read", console=self.context.console))
        )

    def export(self, **options: object) -> float:
        target = self._folder / "table"
        given: dict[str, object] = {
            "to": str(target),
            "subscription": Subscription((TOPIC,)),
            "catalog": "bench",
            "catalog_properties": {
                "type": "sql",
                "uri": f"sqlite:///{self._folder}/catalog.db",
                "warehouse": f"file://{self._folder}/table",
            },
            **options,
        }
        target.mkdir()
        wanted = ExportOptions(**given)  # type: ignore[arg-type]  # as the caller names them
        try:
            return self._rate(lambda: self._exported(wanted))
        finally:
            shutil.rmtree(target)
            (self._folder / "catalog.db").unlink(missing_ok=True)

    def _exported(self, wanted: ExportOptions) -> int:
        done = run(self.context, wanted).done
        self.ratio = done.data_bytes / done.file_bytes
        return done.rows

    def _rate(self, work: Callable[[], int]) -> float:
        begun = perf_counter()
        assert work() > 0
        return self.bytes / 1e6 / (perf_counter() - begun)


EXPORTS: dict[str, dict[str, object]] = {
    "Parquet zstd(1)": {},
    "Parquet zstd(1), by day": {"by_day": True},
    "Parquet zstd(3)": {"level": 3},
    "Parquet snappy": {"codec": "snappy", "level": None},
    "Delta zstd(1)": {"table_format": "delta"},
    "Iceberg zstd(1)": {"table_format": "iceberg", "to": "lake.orders"},
}


def main() -> None:
    segments = int((sys.argv[1:] or ["16"])[0])
    measures, notes = [], [f"{segments} segments, local[2]"]
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-export-") as folder:
        for codec in (Codec.NONE, Codec.ZSTD):
            bench = Bench(Path(folder), codec, segments)
            bench.read()
            bench.export()
            notes.append(
                f"{codec.name.lower()} segments: {bench.bytes / 1e6:,.0f} MB of records before "
                f"compression; Parquet zstd(1) is {bench.ratio:.1f} times smaller"
            )
            rates: dict[str, list[float]] = {"read and decode": []}
            for _ in range(ROUNDS):
                rates["read and decode"].append(bench.read())
                for name, options in EXPORTS.items():
                    rates.setdefault(name, []).append(bench.export(**options))
            for name, samples in rates.items():
                target = name == "Parquet zstd(1)"
                measures.append(
                    Measure(
                        f"{codec.name.lower()} segments: {name}",
                        "MB/s",
                        samples,
                        f">= {TARGET_MB_S:g}" if target else "",
                        sorted(samples)[len(samples) // 2] >= TARGET_MB_S if target else None,
                    )
                )
            shutil.rmtree(Path(folder) / f"tier-{codec.name}")
    write_table(
        "Export", measures, packages=("pyspark", "pyarrow", "deltalake", "pyiceberg"), notes=notes
    )


if __name__ == "__main__":
    main()
