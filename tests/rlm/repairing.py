"""A node whose tier is damaged behind its back, and what a repair of it came to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlm.copy.mending import ReplicasPort
from rlm.data_plane.read_request import RecordsRequest
from rlm.format.object_keys import SegmentKeys, segment_keys
from rlm.node_files.scrub_results import DamagedSegment, PartitionScrub, ScrubFinding
from rlm.repair.repair_run import DamagedSegmentRepair, RepairRequest, RepairRun, RepairState
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from rsm_backends.memory import MemoryStore
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS, PREFIX, Node, new_world

GONE_AFTER_S = LIMITS.delete_delay_s + LIMITS.upload_margin_s + 1.0
APPLY = RepairRequest("orders", apply=True)
LOOK = RepairRequest("orders")
EVERYTHING = RecordsRequest(0, 1 << 30)


@asynccontextmanager
async def copied(
    tmp_path: Path,
    orders: KafkaLog,
    *,
    versioned: bool = False,
    replicas: ReplicasPort | None = None,
) -> AsyncIterator[Node]:
    """A node that has copied all there is to copy, and goes on holding its claim."""
    world = new_world(tmp_path, (orders.log_dir,), versioned=versioned)
    world.replicas = replicas
    async with world.boot(data_plane=True) as node:
        await node.remote_log.run_once()
        yield node


def row_at(node: Node, orders: KafkaLog, start: int) -> RemoteLogSegmentMetadata:
    """The finished segment that begins there."""
    (found,) = [
        row
        for row in node.metadata.list_remote_log_segments(orders.partition)
        if row.start_offset == start and row.state is SegmentState.COPY_SEGMENT_FINISHED
    ]
    return found


def keys_of(row: RemoteLogSegmentMetadata) -> SegmentKeys:
    return segment_keys(PREFIX, row.segment_id, row.start_offset)


async def repaired(node: Node, request: RepairRequest = APPLY) -> RepairRun:
    """The run, when it has ended."""
    run = node.repairs.start(request, "an admin")
    while run.state is RepairState.RUNNING:
        await asyncio.sleep(1)
    return run


async def only(node: Node, request: RepairRequest = APPLY) -> DamagedSegmentRepair:
    run = await repaired(node, request)
    assert (run.state, run.text) == (RepairState.FINISHED, "")
    (told,) = run.segments
    return told


async def everything(node: Node, orders: KafkaLog) -> bytes:
    """What a reader gets, from the first offset on."""
    pieces = node.parts.reads.records(orders.partition, EVERYTHING)
    return b"".join([piece async for piece in pieces])


def whole(orders: KafkaLog) -> bytes:
    return b"".join(map(orders.log_bytes, (0, 10, 20)))


async def assert_tidy(node: Node) -> None:
    """Nothing is left of what was damaged."""
    await asyncio.sleep(GONE_AFTER_S)
    await node.assert_quiesced()


async def delete(store: MemoryStore, *keys: str) -> None:
    """Behind everybody's back."""
    await MemoryStore.delete_many(store, keys)


def scrubbed(orders: KafkaLog, row: RemoteLogSegmentMetadata) -> PartitionScrub:
    finding = ScrubFinding("log", 3, None, "CRC32C", "repair it")
    damage = DamagedSegment(row.segment_id.id, row.start_offset, row.end_offset, (finding,))
    return PartitionScrub(orders.partition, 0, 29, 3, 1, 0, 0, 1, 5, (damage,))


async def met(node: Node, row: RemoteLogSegmentMetadata) -> None:
    """A reader meets damage."""
    with pytest.raises(CorruptData):
        async for _ in node.parts.reads.open_log(row.segment_id.id):
            pass
