"""Real worker processes under the node's limits: they ask the supervisor, for every byte."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.read_request import LogRequest
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, expected_objects
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import MIB, Flow, FlowLimits, Rates
from rlm.worker.handle import WorkerAmbient
from rlm.worker.pool import WorkerPool
from rsm_backends.store_config import StoreConfig
from strandline.node import ambient
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.real_workers import COMMAND, FAR_FUTURE_MS, LIMITS
from tests.rlm.tier import PREFIX, STORE, copy_job, only_partition, tiered

FAST = 100_000 * MIB


class CountingFlow(FlowControl):
    """Counts what is asked for."""

    def __init__(self, limits: FlowLimits) -> None:
        super().__init__(limits, part_bytes=MIB, workers=2, monotonic=ambient.monotonic)
        self.asked: Counter[tuple[Flow, str | None]] = Counter()

    async def take(self, flow: Flow, topic: str | None, size: int) -> None:
        self.asked[flow, topic] += size
        await super().take(flow, topic, size)


@pytest.fixture
def job(tmp_path: Path) -> CopyJob:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(15):
        replica.append(10, value_bytes=10_000)
    replica.roll()
    partition = only_partition(replica.log_dir)
    made = copy_job(partition, partition.segments[0])
    return replace(made, upload_deadline_ms=FAR_FUTURE_MS)


async def test_what_moves_is_asked_for_while_it_is_limited_and_only_then(
    tmp_path: Path, job: CopyJob
) -> None:
    (tmp_path / "tier").mkdir()
    store = StoreConfig(name=STORE, kind="filesystem", path=tmp_path / "tier", prefix=PREFIX)
    flow = CountingFlow(FlowLimits(Rates(FAST, FAST)))
    pool = WorkerPool(
        COMMAND,
        {STORE: store},
        WorkerAmbient(ambient.monotonic, ambient.sleep),
        limits=replace(LIMITS, count=2),
        flow=flow,
    )
    try:
        await pool.start()
        result = await pool.copy(job)
        topic = job.segment_id.partition.topic
        recorded = result.custom_metadata
        sent = recorded.log_bytes + recorded.indexes_bytes + recorded.manifest_bytes
        assert flow.asked == {(Flow.COPY, topic): sent}
        segment = tiered(job, result)
        log = b"".join([part async for part in pool.read_log(LogRequest(segment))])
        assert len(log) == result.log_bytes
        assert flow.asked[Flow.READ, topic] == recorded.log_bytes + recorded.manifest_bytes
        flow.asked.clear()
        flow.change(FlowLimits(topics={"other": Rates(FAST, FAST)}))
        again = replace(
            job, segment_id=replace(job.segment_id, id=job.segment_id.partition.topic_id)
        )
        await pool.copy(again)
        assert flow.asked == {}
    finally:
        await pool.close()


class NoFlow(CountingFlow):
    """Nothing may be read."""

    async def take(self, flow: Flow, topic: str | None, size: int) -> None:
        if flow is Flow.READ:
            self.asked[flow, topic] += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.asked[flow, topic] -= 1
        await super().take(flow, topic, size)


async def test_a_read_that_is_given_up_leaves_nobody_waiting_for_its_bytes(
    tmp_path: Path, job: CopyJob
) -> None:
    """At a low limit readers that give up, and try again, took all of it and read nothing."""
    (tmp_path / "tier").mkdir()
    flow = NoFlow(FlowLimits(Rates(read_bytes_per_s=MIB)))
    pool = WorkerPool(
        COMMAND,
        {STORE: StoreConfig(name=STORE, kind="filesystem", path=tmp_path / "tier", prefix=PREFIX)},
        WorkerAmbient(ambient.monotonic, ambient.sleep),
        limits=LIMITS,
        flow=flow,
    )
    try:
        await pool.start()
        segment = tiered(job, await pool.copy(job))
        waiting = Flow.READ, job.segment_id.partition.topic
        async with asyncio.timeout(10):
            stream = pool.read_log(LogRequest(segment))
            read = asyncio.ensure_future(anext(stream))
            while not flow.asked[waiting]:
                await asyncio.sleep(0.01)
            read.cancel()
            while flow.asked[waiting]:
                await asyncio.sleep(0.01)
    finally:
        await pool.close()


class SlowFlow(CountingFlow):
    """Every grant takes 10 s, by the supervisor's clock."""

    now_s = 0.0

    async def take(self, flow: Flow, topic: str | None, size: int) -> None:
        self.now_s += 10.0
        await asyncio.sleep(0.01)  # for the watch, which looks all the time
        await super().take(flow, topic, size)


async def test_a_check_that_takes_long_under_a_limit_is_not_taken_for_a_hanging_one(
    tmp_path: Path, job: CopyJob
) -> None:
    (tmp_path / "tier").mkdir()
    flow = SlowFlow(FlowLimits(Rates(read_bytes_per_s=MIB)))
    pool = WorkerPool(
        COMMAND,
        {STORE: StoreConfig(name=STORE, kind="filesystem", path=tmp_path / "tier")},
        WorkerAmbient(lambda: flow.now_s, lambda _: asyncio.sleep(0.001)),
        limits=LIMITS,
        flow=flow,
    )
    try:
        await pool.start()
        segment = tiered(job, await pool.copy(job))
        objects = expected_objects(PREFIX, segment.segment_id, 0, segment.custom_metadata)
        assert await pool.check(CheckJob(STORE, objects)) == CheckResult(())
        assert flow.now_s > LIMITS.stream_stall_s
    finally:
        await pool.close()
