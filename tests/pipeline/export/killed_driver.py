"""An export in a process of its own, which stands still in the middle of a task.

python -m tests.pipeline.export.killed_driver TIER TARGET FIFO
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from pipeline.export.export_task import WriteFiles
from pipeline.jobs import export
from pipeline.jobs.job import JobContext
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.source.options import Subscription
from pipeline.spark.session import open_session
from rsm_backends.store_config import StoreConfig
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.real.spark_jvm import quick_start, spark_home

FIFO = "STRANDLINE_TEST_FIFO"
TOPIC = "orders"


def export_options(target: Path, **more: object) -> export.ExportOptions:
    """Each segment a task, so that some of them are through when one stands still."""
    given: dict[str, object] = {
        "to": str(target),
        "subscription": Subscription((TOPIC,)),
        "task_bytes": 1,
        **more,
    }
    return export.ExportOptions(**given)  # type: ignore[arg-type]  # as the caller names them


def stand_still(
    slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Reads as it should, but stops behind the first records of the second segment."""
    for batch in read_slices(slices, stores, settings):
        yield batch
        if batch.column("offset")[0].as_py() > 0:
            fd = os.open(os.environ[FIFO], os.O_WRONLY)  # open until this process dies
            os.write(fd, b"x")
            signal.pause()


def main() -> None:
    tier, target, fifo = sys.argv[1:]
    os.environ[FIFO] = fifo
    catalogue: CapturedTier = asyncio.run(tier_captured(Path(tier), TOPIC))
    vars(export)["WriteFiles"] = functools.partial(WriteFiles, read=stand_still)
    os.environ["SPARK_HOME"] = str(spark_home())
    conf = quick_start() | {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = open_session("killed", master="local[2]", conf=conf)
    context = JobContext(spark, {}, catalogue, Console(stderr=True))
    export.run(context, export_options(Path(target), table_format="delta"))


if __name__ == "__main__":
    main()
