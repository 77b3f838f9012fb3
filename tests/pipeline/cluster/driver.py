"""A user's program, started by spark-submit: one query and one job, each held in the middle, and
where a folder for what they write is named, Strandline's own jobs, too (held_jobs.py).

Arguments: a folder to signal through, options of the data source as JSON; that folder, and the
brokers to restore into. Tasks wait until somebody has killed what they run on. Prints one line of
JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

HELD_TASKS = 2
DEADLINE_S = 60


def hold(signals: str, part: str, task: int) -> None:
    """Say which executor this runs on, and wait until it may go on; a second attempt does not."""
    folder = Path(signals, part)
    if task >= HELD_TASKS or (folder / "go").exists():
        return
    daemon = os.getppid()
    executor = Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]
    (folder / f"held-{task}.part").write_text(executor)
    (folder / f"held-{task}.part").rename(folder / f"held-{task}")
    ends_at = time.monotonic() + DEADLINE_S
    while not (folder / "go").exists() and time.monotonic() < ends_at:
        time.sleep(0.05)


def held_batches(batches: Iterator[Any], signals: str) -> Iterator[Any]:
    """For mapInArrow."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    hold(signals, "query", context.partitionId())
    yield from batches


def count_rows(task: tuple[int, Any], signals: str, stores: Any, settings: Any) -> int:
    """For `run_tasks`: what a job does with slices of segments."""
    from pipeline.read.records import read_slices

    number, slices = task
    hold(signals, "job", number)
    return sum(batch.num_rows for batch in read_slices(slices, stores, settings))


def main(
    signals: str, options: dict[str, str], written: str | None = None, bootstrap: str = ""
) -> None:
    from rich.console import Console

    from pipeline.catalogue.open_catalogue import open_catalogue
    from pipeline.jobs.tasks import run_tasks
    from pipeline.session import open_session
    from pipeline.source.batch_plan import plan_batch
    from pipeline.source.options import parse_options
    from pipeline.source.tier_view import TierView

    spark = open_session("cluster test", conf={"spark.ui.enabled": "false"})
    frame = spark.read.format("strandline").options(**options).load()
    held = frame.mapInArrow(partial(held_batches, signals=signals), frame.schema)
    rows = sorted(
        (row.partition, row.offset) for row in held.select("partition", "offset").collect()
    )
    query = parse_options(options)
    catalogue = open_catalogue(options)
    tasks = plan_batch(TierView(catalogue, query.read_settings()), query)
    counts = run_tasks(
        spark.sparkContext,
        list(enumerate(tasks)),
        partial(
            count_rows, signals=signals, stores=catalogue.stores, settings=query.read_settings()
        ),
        what="count",
        console=Console(stderr=True),
    )
    told: dict[str, Any] = {
        "master": spark.sparkContext.master,
        "rows": rows,
        "counted": sum(counts),
        "code": __import__("pipeline").__file__,
    }
    if written is not None:
        from tests.pipeline.cluster.held_jobs import HeldJobs

        store = {name: value for name, value in options.items() if "strandline." in name}
        told |= HeldJobs(spark, store, signals, Path(written), bootstrap).run()
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])
