"""A store that comes up empty (a disk that is not mounted, another bucket) is not taken for new."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from rlm.control.node_problem import ProblemArea
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.cluster_marker import ClusterMarker
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from rlmm.segment import SegmentState
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import (
    CLEANED_UP_AFTER_S,
    LIMITS,
    PREFIX,
    Bucket,
    Node,
    Steps,
    new_world,
)
from tests.rlm.virtual_time import run_virtually, virtual_ambient


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def writes(steps: Steps) -> set[str]:
    """What was changed in the store, or would have been."""
    changes = ("put", "start", "complete", "replace", "delete", "abort")
    return {name for name in steps.names if name.startswith(tuple(f"before {c} " for c in changes))}


def told(node: Node) -> str:
    return " ".join(each.text for each in node.remote_log.node_problems())


async def begin_to_delete_all(node: Node, orders: KafkaLog) -> None:
    await node.remote_log.run_once()
    await node.remote_log.start()
    policy = TopicPolicy(retention_ms=0)
    await node.metadata.set_topic_policy(TopicPolicyChange("orders", policy, -1))
    while node.finished(orders.partition):
        await asyncio.sleep(0.5)


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
        steps = Steps()
        async with world.boot(hook=steps) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert writes(steps) == set(), "not even a probe of the clock"
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert await node.keys() == set()
            (problem,) = (
                each for each in node.remote_log.node_problems() if each.area is ProblemArea.STORE
            )
            assert "empty or a different one" in problem.text
            with pytest.raises(RetryLater, match="empty or a different"):
                await node.remote_log.run_once()
        world.store = right
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


def test_a_store_of_which_all_is_to_be_deleted_is_not_taken_for_new(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """What waits to be deleted is in it still; what is copied into another store would be lost."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        right = world.store
        async with world.boot() as node:
            await begin_to_delete_all(node, orders)
        world.store = Bucket(virtual_ambient().now_ms)
        orders.write(20, 30, end=35)
        async with world.boot() as node:
            rows = node.metadata.list_remote_log_segments(orders.partition)
            assert {row.state for row in rows} == {SegmentState.DELETE_SEGMENT_STARTED}
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert await node.keys() == set()
            assert "empty or a different one" in told(node)
        world.store = right
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.segment_count) == (30, 0)
            await node.assert_quiesced()

    run_virtually(main)


def test_a_store_that_lost_its_marker_after_all_was_deleted_is_used_again_on_a_persons_word(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Nothing in it tells it from another one, and its rows can't go without it."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await begin_to_delete_all(node, orders)
        world.store = Bucket(virtual_ambient().now_ms)
        orders.write(20, 30, end=35)
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert await node.keys() == set()
            (said,) = set(re.findall(r"\{.*?\}", told(node)))
            await world.store.put(
                cluster_marker_key(PREFIX), said.encode(), crc32c=crc32c(said.encode())
            )
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.segment_count) == (30, 0)
            assert "marker" not in told(node)
            await node.assert_quiesced()

    run_virtually(main)


def test_a_store_with_a_part_of_what_is_being_deleted_is_the_right_one(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await begin_to_delete_all(node, orders)
        keys = {each.key for each in (await world.store.list_page("")).objects}
        (left, *_) = sorted(key for key in keys if key.endswith(".log"))
        await world.store.delete_many(sorted(keys - {left}))
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            assert cluster_marker_key(PREFIX) in await node.keys()

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


@pytest.mark.parametrize("instead", [None, "archive"])
def test_a_store_that_goes_away_under_a_running_node_loses_nothing(
    tmp_path: Path, orders: KafkaLog, instead: str | None
) -> None:
    """The mount went, or another store of this cluster is there in its place."""
    key = cluster_marker_key(PREFIX)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        steps = Steps()
        async with world.boot(hook=steps) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            right = b"".join([piece async for piece in world.store.get(key)])
            await world.store.delete_many([key])
            if instead is not None:
                other = ClusterMarker(world.cluster_id, None, store=instead).encode()
                await world.store.put(key, other, crc32c=crc32c(other))
            await asyncio.sleep(LIMITS.clock_check_interval_s + 2 * LIMITS.scan_interval_s)
            before = await node.keys()
            steps.names.clear()
            orders.write(20, 30, end=35)
            policy = TopicPolicy(retention_ms=0)
            await node.metadata.set_topic_policy(TopicPolicyChange("orders", policy, -1))
            await asyncio.sleep(3 * LIMITS.retention_interval_s)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)], "nothing is marked"
            assert await node.keys() == before
            assert writes(steps) == set()
            assert ("is gone" if instead is None else "'archive'") in told(node)
            await world.store.delete_many([key])
            await world.store.put(key, right, crc32c=crc32c(right))
            await asyncio.sleep(LIMITS.clock_check_interval_s + 3 * LIMITS.retention_interval_s)
            assert node.finished(orders.partition) == [], "and goes on once it is back"
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.next_offset == 30

    run_virtually(main)
