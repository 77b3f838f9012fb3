"""A store that comes up empty (a disk that is not mounted, another bucket) is not taken for new."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.node_problem import ProblemArea
from rlm.object_keys import cluster_marker_key
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Bucket, new_world
from tests.rlm.virtual_time import run_virtually, virtual_ambient


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_an_empty_store_that_rows_name_gets_nothing_and_the_node_says_so(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        right = world.store
        async with world.boot() as node:
            await node.remote_log.run_once()
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
        world.store = Bucket(virtual_ambient().now_ms)
        orders.write(20, 30, end=35)
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert await node.keys() == set()
            (problem,) = (
                each for each in node.remote_log.node_problems() if each.area is ProblemArea.STORE
            )
            assert "empty or another one" in problem.text
            with pytest.raises(RetryLater, match="empty or another"):
                await node.remote_log.run_once()
        world.store = right
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


def test_a_store_that_lost_its_marker_alone_gets_it_again(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
        await world.store.delete_many([cluster_marker_key(PREFIX)])
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            assert cluster_marker_key(PREFIX) in await node.keys()

    run_virtually(main)
