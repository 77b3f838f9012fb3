"""Time of a whole node from its process's start to ready (/readyz answers 200).

`python -m bench.start [SEGMENTS]` (1,000,000): after a clean stop, and after a SIGKILL right before
a due flush of the view, so that as many records as possible are applied again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.metadata_node import CACHE, data_directory, metadata_node, propose
from bench.metadata_set import MetadataSet
from bench.node_process import node_process
from bench.table import Measure, write_table
from rlmm.manager.manager import MetadataLimits

CLEAN_STARTS = 3
KILLS = 2
CLEAN_MAX_S = 2.0
KILLED_MAX_S = 10.0
RECORDS = MetadataLimits().view_flush_records - 10
SEGMENTS_A_PROPOSAL = 100


async def write_and_die(path: Path, metadata_set: MetadataSet, life: int) -> None:
    """Apply records up to just below a flush of the view, then SIGKILL."""
    # A snapshot would flush the view too.
    limits = MetadataLimits(snapshot_records=2**62, snapshot_bytes=2**62)
    async with metadata_node(path, limits=limits) as node:
        flushed = node.view.flushed_offset
        segments = [
            metadata_set.started(
                number % metadata_set.partitions,
                metadata_set.segments_each + life * RECORDS + number // metadata_set.partitions,
            )
            for number in range(RECORDS // 2)
        ]
        for at in range(0, len(segments), SEGMENTS_A_PROPOSAL):
            await propose(node, segments[at : at + SEGMENTS_A_PROPOSAL])
        assert node.view.flushed_offset == flushed, "the view was flushed: nothing is replayed"
        os.kill(os.getpid(), signal.SIGKILL)


def measure(home: Path, data: Path, segments: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds to ready after clean stops and after kills; resident MiB once ready."""
    clean, killed, memory = [], [], []
    with node_process(home, data):
        pass  # whatever earlier lives left is done now
    for _ in range(CLEAN_STARTS):
        with node_process(home, data) as node:
            clean.append(node.ready_s)
            memory.append(node.resident_mib())
    for life in range(KILLS):
        command = [sys.executable, "-m", "bench.start", str(segments), str(data), str(life)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr[-2_000:]
        with node_process(home, data) as node:
            killed.append(node.ready_s)
    return clean, killed, memory


def main() -> None:
    segments = int((sys.argv[1:] or ["1000000"])[0])
    kept, metadata_set = data_directory(segments)
    if len(sys.argv) > 2:
        asyncio.run(write_and_die(Path(sys.argv[2]), metadata_set, int(sys.argv[3])))
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        data = Path(shutil.copytree(kept, Path(home) / "node"))
        clean, killed, memory = measure(Path(home), data, segments)
    write_table(
        "Start of a whole node",
        [
            Measure(
                "process start to ready, clean stop", "s", clean, f"<= {CLEAN_MAX_S}",
                max(clean) <= CLEAN_MAX_S,
            ),
            Measure(
                "process start to ready, SIGKILL", "s", killed, f"<= {KILLED_MAX_S}",
                max(killed) <= KILLED_MAX_S,
            ),
            Measure("supervisor's memory once ready", "MiB", memory),
        ],
        packages=("rocksdict", "uvloop"),
        notes=(
            f"{metadata_set.segments:,} segments in {metadata_set.partitions:,} partitions",
            f"{RECORDS:,} records to apply again after a SIGKILL",
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
