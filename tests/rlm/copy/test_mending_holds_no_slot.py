"""Partitions whose damage is mended hold up no healthy one, however slow the brokers are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_client.replica_answers import Batches, Extent, OutOfRange
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import NoAnswer
from tests.rlm.held_segments import A_FEW_SCANS_S
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.replicas import remove
from tests.rlm.virtual_time import run_virtually


class Hanging:
    """Brokers that answer nothing before any deadline."""

    async def replicas(self, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
        return [1, 2]

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        raise AssertionError("its extent is asked for first")

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        await asyncio.sleep(100_000)
        raise AssertionError("the deadline passed long ago")

    async def close(self) -> None:
        """Nothing is kept open."""


@pytest.mark.parametrize("gone", [False, True])
def test_a_healthy_partition_is_copied_at_once_beside_many_that_wait_for_brokers(
    tmp_path: Path, gone: bool
) -> None:
    log_dir = new_log_dir(tmp_path / "kafka")
    logs = []
    for number in range(13):
        log = KafkaLog.create(log_dir, "orders", number, entries=((0, 0),))
        log.write(0, 10, 20, 30, 40, end=45)
        logs.append(log)
    *damaged, healthy = logs
    for log in damaged:
        if gone:
            remove(log, 10)
        else:
            log.damage(0)

    async def main() -> None:
        world = new_world(tmp_path, (log_dir,))
        world.replicas = Hanging()
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert len(node.finished(healthy.partition)) == 4
            assert "mended" in node.remote_log.status(damaged[-1].partition).why_not_text

    run_virtually(main)
