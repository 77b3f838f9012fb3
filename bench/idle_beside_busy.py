"""CPU that idle partitions cost a node that works for others.

`python -m bench.idle_beside_busy [PARTITIONS] [BUSY] [SECONDS]` (2,000, 20, three times 20 s): a
node over a standalone log directory, in which each busy partition rolls a segment of 64 KiB every
five seconds. The idle ones' share is what the node uses with them beyond what it uses without.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from bench.idle_log_dir import BusyTopic, write_log_dir
from bench.metadata_node import CACHE
from bench.metadata_set import KAFKA_CLUSTER_ID, NODE_ID, MetadataSet, make_data_directory
from bench.node_process import node_process
from bench.table import Measure, write_table

ROUNDS = 3
SETTLE_S = 25
ROLL_S = 5.0
CORE_PERCENT_MAX = 10.0


def used_percent(partitions: int, busy: int, seconds: int) -> list[float]:
    """CPU of one core used by supervisor and workers of a node with so many partitions."""
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        log_dir, data = Path(home) / "kafka-logs", Path(home) / "data"
        write_log_dir(
            log_dir, cluster_id=KAFKA_CLUSTER_ID, node_id=NODE_ID, partitions=partitions - busy
        )
        # Without segments: an empty store that lacks what the metadata names is refused.
        make_data_directory(data, MetadataSet(1, 1), count=0)
        topic = BusyTopic(log_dir, busy)
        done = threading.Event()

        def feed() -> None:
            while not done.wait(ROLL_S):
                topic.roll()

        feeder = threading.Thread(target=feed)
        used = []
        with node_process(Path(home), data, log_dir=log_dir) as node:
            feeder.start()
            try:
                sleep(SETTLE_S)
                for _ in range(ROUNDS):
                    begun, before = perf_counter(), node.cpu_s()
                    sleep(seconds)
                    used.append((node.cpu_s() - before) / (perf_counter() - begun) * 100)
            finally:
                done.set()
                feeder.join()
        copied = len(list((Path(home) / "store").rglob("*.rsm-manifest")))
        if copied < busy * (topic.rolls - 3):
            raise RuntimeError(f"{copied} segments were copied of {busy * topic.rolls}")
    return used


def main() -> None:
    """Measure and print."""
    partitions, busy, seconds = (int(each) for each in (*sys.argv[1:], "2000", "20", "20")[:3])
    CACHE.mkdir(parents=True, exist_ok=True)
    alone = used_percent(busy, busy, seconds)
    together = used_percent(partitions, busy, seconds)
    share = [max(0.0, each - median(alone)) for each in together]
    write_table(
        "Idle partitions beside busy ones",
        [
            Measure(f"{busy} busy partitions alone: CPU of one core", "%", alone),
            Measure(f"{partitions:,} partitions, {busy} of them busy", "%", together),
            Measure(
                "the idle ones' share", "%", share, f"< {CORE_PERCENT_MAX:g}",
                max(share) < CORE_PERCENT_MAX,
            ),
        ],
        packages=("rocksdict", "uvloop"),
        notes=(f"a segment of each busy partition every {ROLL_S:g} s",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
