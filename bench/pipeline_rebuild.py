"""The job `rebuild` over a bucket's manifests: its time and its driver's memory.

`python -m bench.pipeline_rebuild [SEGMENTS]` (100,000, in 1,000 partitions of 10 topics): as
`pipeline_manifests` makes their objects, in a folder in memory; local[2]. One round, from the
listing to the snapshot's last byte, by a session that has started and done nothing yet. The driver
is two processes: Python, which writes the snapshot, and the JVM, in which tasks run, too.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from rich.console import Console

from bench.pipeline_manifests import MEMORY, PARTITIONS, write_folder
from bench.table import Measure, write_table
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from pipeline.jobs.job import JobContext
from pipeline.jobs.rebuild import RebuildOptions, run
from pipeline.session import open_session


def most_resident_mib(pid: int) -> float:
    """The most that a process ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    """Print the table."""
    segments = int((sys.argv[1:] or ["100000"])[0]) // PARTITIONS * PARTITIONS
    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        folder = Path(home)
        config = write_folder(folder / "tier", segments)
        print(f"{segments:,} segments are written", file=sys.stderr, flush=True)
        before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spark = open_session("bench", master="local[2]", conf={"spark.ui.enabled": "false"})
        jvm_pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]  # it runs
        context = JobContext(
            spark, {}, ManifestCatalogue({"main": config}), Console(stderr=True, quiet=True)
        )
        began, cpu_began = perf_counter(), process_time()
        report = run(context, RebuildOptions(folder))
        took, cpu = perf_counter() - began, process_time() - cpu_began
        if not report.ok or report.segments != segments or report.snapshot is None:
            raise RuntimeError("\n".join(report.lines()))
        snapshot_bytes = Path(report.snapshot).stat().st_size
        jvm_mib = most_resident_mib(jvm_pid)
        spark.stop()
    python_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    write_table(
        "Rebuild from manifests alone, folder",
        [
            Measure("listing to snapshot", "s", [took]),
            Measure("manifests a second", "1/s", [segments / took]),
            Measure("the driver's Python, CPU", "s", [cpu]),
            Measure("snapshot", "MiB", [snapshot_bytes / (1 << 20)]),
            Measure("the driver's Python before, memory", "MiB", [before_mib]),
            Measure("the driver's Python, memory, the most", "MiB", [python_mib]),
            Measure("the driver's JVM, memory, the most", "MiB", [jvm_mib]),
        ],
        packages=("pyspark", "pyarrow"),
        notes=(f"{segments:,} segments in {PARTITIONS:,} partitions",),
    )


if __name__ == "__main__":
    main()
