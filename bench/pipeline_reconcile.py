"""The job `reconcile`: a bucket's objects against a metadata snapshot.

`python -m bench.pipeline_reconcile [SEGMENTS]` (100,000, in 1,000 partitions of 10 topics): as
`pipeline_manifests` makes their objects, three each, in a folder in memory, and a snapshot of all
but the last segment of each partition, so that those are foreign; local[2]. One round, from the
listing to the table of every object, by a session that has started and done nothing yet.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

from rich.console import Console

from bench.pipeline_manifests import (
    FOLDER_LOG_BYTES,
    MEMORY,
    PARTITIONS,
    uploaded_apart,
    write_folder,
)
from bench.spark_stages import MeasuredContext
from bench.table import Measure, write_table
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from pipeline.jobs.reconcile import ReconcileOptions, ReconcileReport, run
from pipeline.process.ambient import now_ms
from pipeline.spark.session import open_session
from rlm.format.object_keys import ObjectSuffix
from rlm.reconcile.collection_plan import ObjectClass


def check(report: ReconcileReport, segments: int) -> None:
    """Every object has the class that its segment's row gives it, or has none."""
    counts = {name: found.count for name, found in report.objects.items() if found.count}
    expected = {
        ObjectClass.LIVE.value: (segments - PARTITIONS) * len(ObjectSuffix),
        ObjectClass.FOREIGN.value: PARTITIONS * len(ObjectSuffix),
        ObjectClass.OWN.value: 1,
    }
    if counts != expected or not report.ok or report.rows != segments - PARTITIONS:
        raise RuntimeError("\n".join(report.lines()))


def main() -> None:
    """Print the table."""
    segments = int((sys.argv[1:] or ["100000"])[0]) // PARTITIONS * PARTITIONS
    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        folder = Path(home)
        config = write_folder(folder / "tier", segments)
        uploaded_apart(config, folder, segments, FOLDER_LOG_BYTES)
        (snapshot,) = folder.glob("*.checkpoint")
        print(f"{segments:,} segments are written", file=sys.stderr, flush=True)
        before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spark = open_session("bench", master="local[2]", conf={"spark.ui.enabled": "false"})
        context = MeasuredContext(
            spark, {}, ManifestCatalogue({"main": config}), Console(stderr=True, quiet=True)
        )
        options = ReconcileOptions(
            None, snapshot, str(folder / "verdicts"), False, False, 0, now_ms, sleep
        )
        began = perf_counter()
        report = run(context, options)
        took = perf_counter() - began
        check(report, segments)
        spark.stop()
    objects = segments * len(ObjectSuffix)
    write_table(
        "Reconciliation of a folder with a metadata snapshot",
        [
            Measure("listing to table", "s", [took]),
            Measure("objects a second", "1/s", [objects / took]),
            *context.measures(),
            Measure("the driver's Python before, memory", "MiB", [before_mib]),
        ],
        packages=("pyspark", "pyarrow"),
        notes=(f"{segments:,} segments, {objects:,} objects in {PARTITIONS:,} partitions",),
    )


if __name__ == "__main__":
    main()
