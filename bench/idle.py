"""CPU of a whole node with 1,000 partitions and nothing to do.

`python -m bench.idle [PARTITIONS] [SECONDS]` (1,000 partitions, three times 20 s): a standalone log
directory whose partitions this node leads and has claimed, each with one active segment. Supervisor
and workers are counted.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

from bench.idle_log_dir import write_log_dir
from bench.metadata_node import CACHE
from bench.metadata_set import KAFKA_CLUSTER_ID, NODE_ID, MetadataSet, make_data_directory
from bench.node_process import node_process
from bench.table import Measure, write_table

ROUNDS = 3
SETTLE_S = 20
CORE_PERCENT_MAX = 2.0


def main() -> None:
    partitions, seconds = (int(each) for each in (*sys.argv[1:], "1000", "20")[:2])
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        log_dir, data = Path(home) / "kafka-logs", Path(home) / "data"
        write_log_dir(log_dir, cluster_id=KAFKA_CLUSTER_ID, node_id=NODE_ID, partitions=partitions)
        # Without segments: an empty store that lacks what the metadata names is refused.
        make_data_directory(data, MetadataSet(1, 1), count=0)
        used = []
        with node_process(Path(home), data, log_dir=log_dir) as node:
            sleep(SETTLE_S)  # claims of all partitions
            for _ in range(ROUNDS):
                begun, before = perf_counter(), node.cpu_s()
                sleep(seconds)
                used.append((node.cpu_s() - before) / (perf_counter() - begun) * 100)
            memory = node.resident_mib()
    write_table(
        "Idle node",
        [
            Measure(
                "CPU of one core", "%", used, f"< {CORE_PERCENT_MAX:g}",
                max(used) < CORE_PERCENT_MAX,
            ),
            Measure("supervisor's memory", "MiB", [memory]),
        ],
        packages=("rocksdict", "uvloop"),
        notes=(f"{partitions:,} partitions, nothing to copy, measured over {seconds} s each",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
