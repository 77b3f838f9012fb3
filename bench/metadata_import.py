"""The import of Kafka's metadata topic: replay, records through log and view, comparison.

`python -m bench.metadata_import [SEGMENTS]` (1,000,000 of 50 partitions): two records of the topic
a segment, from memory. Everything runs one after the other on one event loop, as in a switch.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

from bench.metadata_node import MetadataNode, metadata_node
from bench.metadata_set import MetadataSet, make_data_directory
from bench.node_process import resident_mib
from bench.table import Measure, write_table
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.comparing import compare
from rlm.migration.import_plan import plan_import
from rlm.migration.topic_replay import TopicReplay
from rlmm.migration_phase import MigrationPhase
from rlmm.records.control_records import MigrationPhaseChange
from rlmm.records.segment_records import encode_segment_record
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

PARTITIONS = 50
TOPIC_ID = Uuid(b"imported-topicid")
OFFSETS = 1_000
SEGMENTS_AN_EPOCH = 500
TIME_MS = 1_700_000_000_000
IMPORT_MAX_S = 180
MEMORY_MAX_MIB = 500


def topic(tip: TopicIdPartition, segments: int) -> Iterator[bytes]:
    """Two records a segment; now and then an epoch begins inside of one."""
    for number in range(segments):
        id_ = RemoteLogSegmentId(
            tip, Uuid(tip.partition.to_bytes(8, "big") + number.to_bytes(8, "big"))
        )
        start, epoch = number * OFFSETS, number // SEGMENTS_AN_EPOCH
        begins = bool(number) and number % SEGMENTS_AN_EPOCH == 0
        epochs = ((epoch - 1, start), (epoch, start + 10)) if begins else ((epoch, start),)
        yield encode_segment_record(
            RemoteLogSegmentMetadata(
                id_, start, start + OFFSETS - 1, 1, TIME_MS, TIME_MS, epochs, 100_000_000, None,
                SegmentState.COPY_SEGMENT_STARTED,
            )
        )  # fmt: skip
        yield encode_segment_record(
            RemoteLogSegmentMetadataUpdate(
                id_, 1, TIME_MS, b"a foreign custom metadata", SegmentState.COPY_SEGMENT_FINISHED
            )
        )


async def imported(node: MetadataNode, segments: int) -> tuple[float, float]:
    """(seconds, seconds of the processor), making the topic's records aside."""
    manager, wall_s, cpu_s = node.manager, 0.0, 0.0
    await manager.finalise_feature_level(2)
    for phase in (MigrationPhase.KAFKA, MigrationPhase.SWITCHING):
        since = manager.migration().since
        change = MigrationPhaseChange(phase, since, "kafka", "bench", "")
        await manager.record_move(change)
    since = manager.migration().since
    for number in range(PARTITIONS):
        tip = TopicIdPartition("imported", TOPIC_ID, number)
        values = list(topic(tip, segments // PARTITIONS))
        began_s, began_cpu_s = perf_counter(), process_time()
        replay = TopicReplay("the topic")
        for offset, value in enumerate(values):
            replay.apply(offset, value)
        cache = replay.caches[tip]
        for record in plan_import(tip, cache, since=since, recorded=0):
            await manager.record_move(record)
        assert list(compare(manager, tip, cache, since=since)) == []
        wall_s += perf_counter() - began_s
        cpu_s += process_time() - began_cpu_s
    return wall_s, cpu_s


async def measured(home: Path, segments: int) -> None:
    async with metadata_node(home) as node:
        wall_s, cpu_s = await imported(node, segments)
        memory = resident_mib()
    whole = segments >= 1_000_000
    write_table(
        f"Import of {segments:,} segments of {PARTITIONS} partitions",
        [
            Measure("replay, import and comparison", "s", [wall_s], f"< {IMPORT_MAX_S}",
                    wall_s < IMPORT_MAX_S if whole else None),
            Measure("of that, processor", "s", [cpu_s]),
            Measure("processor a segment", "us", [cpu_s / segments * 1e6]),
            Measure("memory", "MiB", [memory], f"< {MEMORY_MAX_MIB}", memory < MEMORY_MAX_MIB),
        ],
        notes=["one node, a quorum of one voter; the topic's records come from memory"],
    )  # fmt: skip


def main() -> None:
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "node"
        make_data_directory(home, MetadataSet(1, 1), count=0)
        asyncio.run(measured(home, segments))


if __name__ == "__main__":
    main()
