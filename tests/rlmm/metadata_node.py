"""A metadata manager over a sole voter's log and a view, for tests; and records for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.log.disk import Disk
from rlmm.log.log_limits import LogLimits
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.partition_state import Mode
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.records.control_records import LogStart, PartitionClaim
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rlmm.view.view import View
from tests.rlmm.quorum.sole_voter import open_sole_voter

NOW_MS = 1_700_000_000_000
NODE_ID = 1
DIRECTORY_ID = Uuid(b"directory-one...")
PARTITION = TopicIdPartition("orders", Uuid(b"topic-id-orders."), 0)


class Node:
    """One life: `log`, `view` and `manager`, open until `close`."""

    def __init__(self, log: QuorumLog, view: View, manager: RemoteLogMetadataManager) -> None:
        self.log = log
        self.view = view
        self.manager = manager
        self.failures: list[str] = []

    async def close(self) -> None:
        await self.manager.close()
        await self.log.close()
        self.view.close()


async def open_log(
    home: Path, view: View, *, limits: LogLimits | None = None, disk: Disk | None = None
) -> QuorumLog:
    return await open_sole_voter(
        home / "metadata",
        node_id=NODE_ID,
        directory_id=DIRECTORY_ID,
        view_flushed_end=view.flushed_offset + 1,
        now_ms=lambda: NOW_MS,
        on_failure=lambda message: None,
        limits=limits,
        disk=disk,
    )


async def open_node(
    home: Path,
    *,
    boot: int = 1,
    limits: MetadataLimits | None = None,
    log_limits: LogLimits | None = None,
    disk: Disk | None = None,
) -> Node:
    view = View.open(home / "view")
    try:
        log = await open_log(home, view, limits=log_limits, disk=disk)
        failures: list[str] = []
        try:
            manager = await RemoteLogMetadataManager.start(
                log,
                view,
                incarnation=incarnation(boot),
                now_ms=lambda: NOW_MS,
                limits=limits,
                on_failure=failures.append,
            )
        except BaseException:
            await log.close()
            raise
    except BaseException:
        view.close()
        raise
    node = Node(log, view, manager)
    node.failures = failures
    return node


@asynccontextmanager
async def running_node(
    home: Path,
    *,
    boot: int = 1,
    limits: MetadataLimits | None = None,
    log_limits: LogLimits | None = None,
) -> AsyncIterator[Node]:
    node = await open_node(home, boot=boot, limits=limits, log_limits=log_limits)
    try:
        yield node
    finally:
        await node.close()


async def until(condition: Callable[[], bool], *, deadline_s: float = 30) -> None:
    """Let everything else run until `condition` holds."""
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0)


def incarnation(boot: int = 1) -> Incarnation:
    return Incarnation(NODE_ID, DIRECTORY_ID, boot)


def claim(
    *,
    epoch: int = 1,
    number: int = 1,
    boot: int = 1,
    epochs: tuple[tuple[int, int], ...] = ((1, 0),),
    partition: TopicIdPartition = PARTITION,
) -> PartitionClaim:
    return PartitionClaim(
        partition,
        Mode.SIDECAR,
        epoch,
        incarnation(boot),
        number,
        tuple(EpochEntry(*entry) for entry in epochs),
    )


def started(
    number: int, token: int, *, start: int | None = None, boot: int = 1
) -> RemoteLogSegmentMetadata:
    """Segment `number`, of 100 offsets, just begun."""
    start = number * 100 if start is None else start
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, Uuid(b"segment-%08d" % number)),
        start_offset=start,
        end_offset=start + 99,
        broker_id=NODE_ID,
        max_timestamp_ms=NOW_MS,
        event_timestamp_ms=NOW_MS,
        leader_epochs=((1, start),),
        size_bytes=1_000,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        token=token,
        writer=incarnation(boot),
        upload_deadline_ms=NOW_MS + 60_000,
    )


def finished(segment: RemoteLogSegmentMetadata, *, boot: int = 1) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment.segment_id,
        broker_id=NODE_ID,
        event_timestamp_ms=NOW_MS,
        custom_metadata=b"where",
        state=SegmentState.COPY_SEGMENT_FINISHED,
        token=segment.token,
        writer=incarnation(boot),
    )


def deleted(segment: RemoteLogSegmentMetadata, *, token: int) -> RemoteLogSegmentMetadataUpdate:
    """DELETE_SEGMENT_STARTED of a copy that was given up."""
    return replace(
        finished(segment),
        custom_metadata=None,
        state=SegmentState.DELETE_SEGMENT_STARTED,
        token=token,
        expected_state=SegmentState.COPY_SEGMENT_STARTED,
    )


async def copied(
    manager: RemoteLogMetadataManager, count: int, *, first: int = 0, boot: int = 1
) -> int:
    """Claim, and copy `count` segments from number `first` on; returns the token."""
    answer = await manager.claim_partition(claim(boot=boot))
    if answer.state.log_start_offset < 0:
        await manager.record_log_start(LogStart(PARTITION, answer.token, 1, 0))
    for number in range(first, first + count):
        segment = started(number, answer.token, boot=boot)
        await manager.add_remote_log_segment_metadata(segment)
        await manager.update_remote_log_segment_metadata(finished(segment, boot=boot))
    return answer.token
