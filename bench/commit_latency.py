"""Latency of one proposal, from the call to readable here, beside an fdatasync in an executor.

`python -m bench.commit_latency`: a lone proposer adds and finishes segments one after the other; in
between, an append of as many bytes and its `fdatasync`, in a one-thread executor on the same file
system, are timed alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import uvloop

from bench.metadata_node import CACHE, MetadataNode, metadata_node
from bench.metadata_set import MetadataSet, finished, make_data_directory
from bench.table import Measure, percentile, write_table
from rlmm.records.control_records import LogStart, PartitionClaim
from rlmm.segment import RemoteLogSegmentMetadata

ROUNDS = 1_000
BYTES = 320
ALLOWED_MS = 0.4


async def measure(home: Path) -> tuple[list[float], list[float]]:
    """(milliseconds of one write, milliseconds of one fdatasync), alternating."""
    path = home / "node"
    make_data_directory(path, MetadataSet(1, 8), count=8)
    work = MetadataSet(2, ROUNDS)
    writes, syncs = [], []
    with ThreadPoolExecutor(1) as executor, (home / "beside").open("ab", buffering=0) as beside:
        loop = asyncio.get_running_loop()

        def sync() -> None:
            beside.write(bytes(BYTES))
            os.fdatasync(beside.fileno())

        async with metadata_node(path) as node:
            token = await _claim(node, work)
            for index in range(ROUNDS // 2):
                segment = _own(node, work.started(1, index), token)
                for write in (
                    node.manager.add_remote_log_segment_metadata(segment),
                    node.manager.update_remote_log_segment_metadata(finished(segment)),
                ):
                    begun = perf_counter()
                    await write
                    writes.append((perf_counter() - begun) * 1e3)
                    begun = perf_counter()
                    await loop.run_in_executor(executor, sync)
                    syncs.append((perf_counter() - begun) * 1e3)
                assert node.manager.find_segment(segment.segment_id.id) is not None
    return writes, syncs


async def _claim(node: MetadataNode, work: MetadataSet) -> int:
    partition, lineage = work.partition(1), work.lineage
    template = next(record for _, record in work.records(1))
    assert isinstance(template, PartitionClaim)
    claim = PartitionClaim(
        partition, template.mode, lineage[-1].epoch, node.directory.incarnation, 1, lineage
    )
    answer = await node.manager.claim_partition(claim)
    await node.manager.record_log_start(LogStart(partition, answer.token, 0, 0))
    return answer.token


def _own(
    node: MetadataNode, segment: RemoteLogSegmentMetadata, token: int
) -> RemoteLogSegmentMetadata:
    """The segment as this run of the node starts it."""
    return replace(segment, token=token, writer=node.directory.incarnation)


def main() -> None:
    sys.setswitchinterval(0.0005)  # as `strandline node` does
    CACHE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as home,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        writes, syncs = runner.run(measure(Path(home)))
    over = median(writes) - median(syncs)
    write_table(
        "One proposal, commit to readable",
        [
            Measure("write, call to readable", "ms", writes),
            Measure("fdatasync in an executor", "ms", syncs),
            Measure(
                "difference of the medians", "ms", [over], f"<= {ALLOWED_MS}", over <= ALLOWED_MS
            ),
            Measure("write, p99", "ms", [percentile(writes, 99)]),
            Measure("fdatasync, p99", "ms", [percentile(syncs, 99)]),
        ],
        packages=("rocksdict", "uvloop"),
        notes=(f"{len(writes)} writes by one proposer, {BYTES} bytes in the bare append",),
    )


if __name__ == "__main__":
    main()
