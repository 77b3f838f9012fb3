"""The job `rebuild` over a bucket's manifests: its time and CPU by stage, and its memory.

`python -m bench.pipeline_rebuild [SEGMENTS]` (100,000, in 1,000 partitions of 10 topics): as
`pipeline_manifests` makes their objects, in a folder in memory; local[2]. One round, from the
listing to the snapshot's last byte, by a session that has started and done nothing yet.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench.pipeline_manifests import MEMORY, PARTITIONS, write_folder
from bench.spark_stages import MeasuredContext
from bench.table import Measure, write_table
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from pipeline.jobs.rebuild import RebuildOptions, run
from pipeline.spark.session import open_session


def main() -> None:
    """Print the table."""
    segments = int((sys.argv[1:] or ["100000"])[0]) // PARTITIONS * PARTITIONS
    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        folder = Path(home)
        config = write_folder(folder / "tier", segments)
        print(f"{segments:,} segments are written", file=sys.stderr, flush=True)
        before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spark = open_session("bench", master="local[2]", conf={"spark.ui.enabled": "false"})
        context = MeasuredContext(
            spark, {}, ManifestCatalogue({"main": config}), Console(stderr=True, quiet=True)
        )
        began = perf_counter()
        report = run(context, RebuildOptions(folder))
        took = perf_counter() - began
        if not report.ok or report.segments != segments or report.snapshot is None:
            raise RuntimeError("\n".join(report.lines()))
        snapshot_bytes = Path(report.snapshot).stat().st_size
        spark.stop()
    write_table(
        "Rebuild from manifests alone, folder",
        [
            Measure("listing to snapshot", "s", [took]),
            Measure("manifests a second", "1/s", [segments / took]),
            Measure("snapshot", "MiB", [snapshot_bytes / (1 << 20)]),
            *context.measures(),
            Measure("the driver's Python before, memory", "MiB", [before_mib]),
        ],
        packages=("pyspark", "pyarrow"),
        notes=(f"{segments:,} segments in {PARTITIONS:,} partitions",),
    )


if __name__ == "__main__":
    main()
