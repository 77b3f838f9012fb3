"""CPU that copying costs a broker, and its heap: our plug-in beside Kafka's LocalTieredStorage.

`python -m bench.broker_copy [MIB [ROUNDS]] [--aiven DIR]` (512, 2). Each round fills a topic of 2
partitions that is not copied (segments of 32 MiB, batches of 64 KiB), and then has it copied: CPU
is of the broker's process from there until the last sealed segment is readable remotely, nobody
writing or reading, less what it used in the seconds before, per second; the heap is what a full
collection leaves. A round before these, which warms the JVMs, is not counted. The third broker has
a node that does not see its disk, to which the plug-in sends the files. Stores are folders on one
disk, and a MinIO for two more brokers, which `--aiven` adds: Aiven's plug-in, and ours beside it.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from bench.command_line import numbers_and_aiven
from bench.node_process import cpu_s
from bench.table import Measure, write_table
from bench.tiering_brokers import (
    MIB,
    TIERED,
    Side,
    aivens,
    fill,
    kafkas,
    ours,
    tiered_bytes,
    wait_for_tier,
)
from tests.real.minio import MinioServer

PARTITIONS = 2
SEGMENT_MIB = 32
IDLE_S = 3.0
SHARE_MAX = 0.25
COPY_DISABLE = "remote.log.copy.disable"
HEAP_GROWTH_MIB_MAX = 8.0


@dataclass(slots=True)
class Copies:
    """The copies of one broker, a sample a round; CPU seconds are of a GiB."""

    broker: list[float] = field(default_factory=list)
    node: list[float] = field(default_factory=list)
    heap_mib: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    """The share of a core, in per cent, that the broker uses anyway."""
    mib_a_s: list[float] = field(default_factory=list)

    def round(self, side: Side, topic: str, size: int) -> None:
        """Fill a topic, then have it copied."""
        config = {**TIERED, "segment.bytes": str(SEGMENT_MIB * MIB), COPY_DISABLE: "true"}
        side.broker.create_topic(topic, partitions=PARTITIONS, config=config)
        fill(side.broker, topic, PARTITIONS, size)
        sleep(IDLE_S)
        idle_s, node_idle_s = cpu_s(side.broker.pid), side.node_cpu_s()
        sleep(IDLE_S)
        broker_s, node_s, began = cpu_s(side.broker.pid), side.node_cpu_s(), perf_counter()
        side.broker.alter_topic(topic, {COPY_DISABLE: "false"})
        asyncio.run(wait_for_tier(side, topic, PARTITIONS))
        took_s = perf_counter() - began
        gib = tiered_bytes(side, topic, PARTITIONS) / 2**30
        idle, node_idle = (broker_s - idle_s) / IDLE_S, (node_s - node_idle_s) / IDLE_S
        self.broker.append((cpu_s(side.broker.pid) - broker_s - idle * took_s) / gib)
        self.node.append((side.node_cpu_s() - node_s - node_idle * took_s) / gib)
        self.idle.append(100 * idle)
        self.mib_a_s.append(1024 * gib / took_s)
        self.heap_mib.append(side.live_heap_mib())
        side.broker.delete_topic(topic)


def main() -> None:
    """Run with the sizes of the command line."""
    (size, rounds), jars = numbers_and_aiven(__doc__, mib=512, rounds=2)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        sides = [
            stack.enter_context(each)
            for each in (
                ours(home / "ours"), kafkas(home / "kafkas"), ours(home / "sent", sees_disk=False)
            )
        ]  # fmt: skip
        if jars is not None:
            (home / "minio").mkdir()
            minio = stack.enter_context(MinioServer(home / "minio"))
            sides.append(stack.enter_context(ours(home / "bucket", minio)))
            sides.append(stack.enter_context(aivens(home / "aivens", minio, jars)))
        copies = [Copies() for _ in sides]
        for number in range(rounds + 1):
            for side, each in zip(sides, copies, strict=True):
                each.round(side, f"copies-{number}", size * MIB)
    for each in copies:
        for samples in (each.broker, each.node, each.heap_mib, each.idle, each.mib_a_s):
            del samples[0]
    write_table(
        "Broker's CPU for copying",
        [*measures(*copies[:3]), *(aivens_measures(*copies[3:]) if jars else ())],
        packages=("confluent-kafka",),
        notes=(f"{size} MiB a round, segments of {SEGMENT_MIB} MiB in {PARTITIONS} partitions",),
    )


def aivens_measures(bucket: Copies, aiven: Copies) -> list[Measure]:
    """The lines about Aiven's plug-in, and ours beside it."""
    ratios = [a / b for a, b in zip(bucket.broker, aiven.broker, strict=True)]
    return [
        Measure("ours, MinIO, broker", "CPU s/GiB", bucket.broker),
        Measure("Aiven's, MinIO, broker", "CPU s/GiB", aiven.broker),
        Measure(
            "ours, of Aiven's", "ratio", ratios, f"median <= {SHARE_MAX}",
            median(ratios) <= SHARE_MAX,
        ),
        Measure("ours, MinIO, node", "CPU s/GiB", bucket.node),
        Measure("Aiven's, live heap", "MiB", aiven.heap_mib),
        Measure("ours, MinIO, copied", "MiB/s", bucket.mib_a_s),
        Measure("Aiven's, MinIO, copied", "MiB/s", aiven.mib_a_s),
    ]  # fmt: skip


def measures(mine: Copies, theirs: Copies, sent: Copies) -> list[Measure]:
    """The table's lines."""
    bound, growth = SHARE_MAX * median(theirs.broker), mine.heap_mib[-1] - mine.heap_mib[0]
    return [
        Measure(
            "ours, broker", "CPU s/GiB", mine.broker, f"median <= {bound:.2f}",
            median(mine.broker) <= bound,
        ),
        Measure("LocalTieredStorage, broker", "CPU s/GiB", theirs.broker),
        Measure("ours, files sent, broker", "CPU s/GiB", sent.broker),
        Measure("ours, node", "CPU s/GiB", mine.node),
        Measure("ours, files sent, node", "CPU s/GiB", sent.node),
        Measure(
            "ours, growth of the live heap", "MiB", [growth], f"<= {HEAP_GROWTH_MIB_MAX:g}",
            growth <= HEAP_GROWTH_MIB_MAX,
        ),
        Measure("ours, live heap", "MiB", mine.heap_mib),
        Measure("LocalTieredStorage, live heap", "MiB", theirs.heap_mib),
        Measure("ours, files sent, live heap", "MiB", sent.heap_mib),
        Measure("ours, copied, waiting included", "MiB/s", mine.mib_a_s),
        Measure("LocalTieredStorage, copied", "MiB/s", theirs.mib_a_s),
        Measure("ours, files sent, copied", "MiB/s", sent.mib_a_s),
        Measure("ours, broker idle", "% of a core", mine.idle),
        Measure("LocalTieredStorage, broker idle", "% of a core", theirs.idle),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
