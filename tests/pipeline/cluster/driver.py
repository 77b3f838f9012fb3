"""A user's program, started by spark-submit: one query and one job, each held in the middle; or,
where a folder for what they write is named, Strandline's own jobs with them (held_jobs.py).

Arguments: a folder to signal through, options of the data source as JSON; that folder, and the
brokers to restore into. Tasks wait until somebody has killed what they run on. Prints one line of
JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 240


def hold(signals: str, part: str) -> None:
    """Wait until the task may go on, and say on which executor: one task a part on each of them. A
    second attempt does not wait.
    """
    folder = Path(signals, part)
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]
    try:
        (folder / f"held-{executor}").touch(exist_ok=False)
    except FileExistsError:
        return
    ends_at = time.monotonic() + DEADLINE_S
    while not (folder / "go").exists() and time.monotonic() < ends_at:
        time.sleep(0.05)


def held_batches(batches: Iterator[Any], signals: str) -> Iterator[Any]:
    """For mapInArrow."""
    hold(signals, "query")
    yield from batches


def count_rows(slices: Any, signals: str, stores: Any, settings: Any) -> int:
    """For `run_tasks`: what a job does with slices of segments."""
    from pipeline.read.records import read_slices

    hold(signals, "job")
    return sum(batch.num_rows for batch in read_slices(slices, stores, settings))


def query(spark: SparkSession, options: Mapping[str, str], signals: str) -> list[tuple[int, int]]:
    """Partition and offset of every record."""
    frame = spark.read.format("strandline").options(**options).load()
    held = frame.mapInArrow(partial(held_batches, signals=signals), frame.schema)
    return sorted(
        (row.partition, row.offset) for row in held.select("partition", "offset").collect()
    )


def job(spark: SparkSession, options: Mapping[str, str], signals: str) -> int:
    """How many records a job finds."""
    from rich.console import Console

    from pipeline.catalogue.open_catalogue import open_catalogue
    from pipeline.jobs.tasks import run_tasks
    from pipeline.source.batch_plan import plan_batch
    from pipeline.source.options import parse_options
    from pipeline.source.tier_view import TierView

    wanted = parse_options(options)
    catalogue = open_catalogue(options)
    settings = wanted.read_settings()
    work = partial(count_rows, signals=signals, stores=catalogue.stores, settings=settings)
    tasks = plan_batch(TierView(catalogue, settings), wanted)
    console = Console(stderr=True)
    return sum(run_tasks(spark.sparkContext, tasks, work, what="count", console=console))


def main(
    signals: str, options: dict[str, str], written: str | None = None, bootstrap: str = ""
) -> None:
    from pipeline.spark.session import open_session

    spark = open_session("cluster test", conf={"spark.ui.enabled": "false"})
    told: dict[str, Any] = {
        "master": spark.sparkContext.master,
        "code": __import__("pipeline").__file__,
    }
    if written is None:
        told |= {"query": query(spark, options, signals), "job": job(spark, options, signals)}
    else:
        from tests.pipeline.cluster.held_jobs import HeldJobs

        told |= HeldJobs(spark, options, signals, Path(written), bootstrap).run()
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])
