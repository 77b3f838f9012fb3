"""A metadata node under proposals, to be killed: log, view and manager in a process of their own.

    python -m tests.durability.killed_node DATA RETAINED_BYTES

Prints one line a step of its start, then one line for each answer to a proposal: segment, state,
metadata offset. What is printed was acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from rlmm.data_directory.data_directory import open_data_directory
from rlmm.log.log_limits import LogLimits
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.records.control_records import LogStart
from rlmm.segment import RemoteLogSegmentId
from tests.durability.quorum_node import open_node
from tests.rlmm.metadata_node import PARTITION, claim, finished, started

LIMITS = MetadataLimits(view_flush_records=25, snapshot_records=60)
SEGMENT_BYTES_MAX = 20_000
ADDERS = 6


def log_limits(retained_bytes: int) -> LogLimits:
    """Small segments, so that rolling and cutting go on all the time."""
    return LogLimits(
        segment_bytes_max=SEGMENT_BYTES_MAX,
        retain_bytes_max=retained_bytes,
        recovery_point_interval_s=0.02,
    )


def say(*words: object) -> None:
    print(*words, flush=True)


async def copy(manager: RemoteLogMetadataManager, token: int, boot: int, next_offset: int) -> None:
    """One segment after another, each begun and finished."""
    for number in count(next_offset // 100):
        segment = started(number, token, boot=boot)
        segment_uuid = Uuid(b"copy%04d%08d" % (boot, number))
        segment = replace(segment, segment_id=RemoteLogSegmentId(PARTITION, segment_uuid))
        offset = await manager.add_remote_log_segment_metadata(segment)
        say(segment_uuid, "COPY_SEGMENT_STARTED", offset)
        offset = await manager.update_remote_log_segment_metadata(finished(segment, boot=boot))
        say(segment_uuid, "COPY_SEGMENT_FINISHED", offset)


async def add(manager: RemoteLogMetadataManager, token: int, boot: int, adder: int) -> None:
    """Copies that only begin, far ahead."""
    for number in count(1_000_000):
        segment_uuid = Uuid(b"ad%02d%04d%08d" % (adder, boot, number))
        segment = replace(
            started(number, token, boot=boot),
            segment_id=RemoteLogSegmentId(PARTITION, segment_uuid),
        )
        offset = await manager.add_remote_log_segment_metadata(segment)
        say(segment_uuid, "COPY_SEGMENT_STARTED", offset)


async def main(data: Path, retained_bytes: int) -> None:
    say("begins")
    with open_data_directory(data) as directory:
        say("directory")
        boot = directory.boot_counter
        node = await open_node(
            data, boot=boot, limits=LIMITS, log_limits=log_limits(retained_bytes)
        )
        say("node")
        answer = await node.manager.claim_partition(claim(boot=boot))
        next_offset = answer.state.next_offset
        if next_offset < 0:
            await node.manager.record_log_start(LogStart(PARTITION, answer.token, 1, 0))
            next_offset = 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy(node.manager, answer.token, boot, next_offset))
            for adder in range(ADDERS):
                tasks.create_task(add(node.manager, answer.token, boot, adder))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
