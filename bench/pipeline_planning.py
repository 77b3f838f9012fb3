"""Planning over a whole cluster: every readable segment of a node, in a driver's memory.

`python -m bench.pipeline_planning [SEGMENTS]` (100,000, in 1,000 partitions of 10 topics): a real
node answers, this process plans; both share the machine's cores. A round asks for the stores, all
topics, their partitions with bounds, and all segments, with nothing remembered from the one before.
In the end a query plans its tasks: uncommitted, as there are no objects to tell transactions.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from bench.metadata_node import CACHE, data_directory
from bench.node_process import node_process
from bench.table import Measure, write_table
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.source.batch_reader import BatchReader
from pipeline.source.task_partition import TaskPartition

ROUNDS = 5
PLANNING_MAX_S = 5.0
DRIVER_MAX_MIB = 1_024


def plan(url: str) -> int:
    """Plan; return the number of segments."""
    catalogue = open_catalogue({"strandline.url": url}, {})
    plans = []
    for topic in catalogue.topics():
        for partition in catalogue.partitions(topic):
            bounds = catalogue.bounds(partition)
            plans.append(catalogue.segments(partition, bounds.earliest, bounds.latest - 1))
    catalogue.close()
    return sum(map(len, plans))


def query(url: str) -> int:
    """Plan a query for everything; return its tasks' number of segments."""
    options = {"strandline.url": url, "subscribePattern": ".*", "isolation": "read_uncommitted"}
    tasks = BatchReader(options).partitions()
    return sum(len(task.slices) for task in tasks if isinstance(task, TaskPartition))


def main() -> None:
    kept, metadata_set = data_directory(int((sys.argv[1:] or ["100000"])[0]))
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        data = Path(shutil.copytree(kept, Path(home) / "node"))
        with node_process(Path(home), data) as node:
            url = f"http://127.0.0.1:{node.port}"
            before, own_before, took = node.cpu_s(), process_time(), []
            for _ in range(ROUNDS):
                begun = perf_counter()
                found = plan(url)
                took.append(perf_counter() - begun)
                assert found == metadata_set.segments, found
            node_s = (node.cpu_s() - before) / ROUNDS
            driver_s = (process_time() - own_before) / ROUNDS
            begun = perf_counter()
            assert query(url) == metadata_set.segments
            query_s = perf_counter() - begun
            node_mib = node.resident_mib()
    driver_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    target = f"< {PLANNING_MAX_S:g} s"
    write_table(
        "Planning from a node",
        [
            Measure("planning", "s", took, target, max(took) < PLANNING_MAX_S),
            Measure("a query, to its tasks", "s", [query_s], target, query_s < PLANNING_MAX_S),
            Measure("driver's CPU", "s", [driver_s]),
            Measure("node's CPU", "s", [node_s]),
            Measure(
                "driver's memory, the most, without Spark", "MiB", [driver_mib],
                f"< {DRIVER_MAX_MIB}", driver_mib < DRIVER_MAX_MIB,
            ),
            Measure("node's memory afterwards", "MiB", [node_mib]),
        ],
        packages=("httpx", "fastapi", "uvloop", "rocksdict"),
        notes=(f"{metadata_set.segments:,} segments in {metadata_set.partitions:,} partitions",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
