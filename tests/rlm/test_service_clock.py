"""Clocks of node and store that are set ahead together: nothing goes before its time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.control.node_problem import ProblemArea
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS as USUAL
from tests.rlm.one_node import Node, World, new_world
from tests.rlm.virtual_time import START_MS, run_virtually

LIMITS = replace(USUAL, clock_hold_s=3_600.0)
YEAR_MS = 365 * 86_400_000
AGE_MS = START_MS - TIMESTAMP_MS
DUE_IN_HALF_A_YEAR = TopicPolicy(retention_ms=AGE_MS + YEAR_MS // 2)
NOTICED_S = LIMITS.clock_check_interval_s + 2 * LIMITS.scan_interval_s
SEGMENTS = [(0, 9), (10, 19)]


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Of fewer segments than the brake counts."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


async def started(node: Node, log: KafkaLog) -> None:
    await node.metadata.set_topic_policy(TopicPolicyChange("orders", DUE_IN_HALF_A_YEAR, -1))
    await node.remote_log.start()
    await asyncio.sleep(NOTICED_S)
    assert node.finished(log.partition) == SEGMENTS


def told(node: Node) -> str:
    (problem,) = node.remote_log.node_problems()
    assert problem.area is ProblemArea.CLOCK
    return problem.text


async def assert_kept(node: Node, log: KafkaLog) -> None:
    """Passes of retention take nothing, and say why."""
    await asyncio.sleep(NOTICED_S + 3 * LIMITS.retention_interval_s)
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    assert (state.log_start_offset, node.finished(log.partition)) == (0, SEGMENTS)
    plan = await node.parts.expirer.plan(log.partition)
    assert plan.held_back == told(node)
    assert "both clocks were set" in told(node)


def test_a_year_ahead_takes_nothing_while_it_is_held_and_nothing_once_it_is_set_right(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=LIMITS) as node:
            await started(node, orders)
            world.set_clocks(YEAR_MS)
            await assert_kept(node, orders)
            await asyncio.sleep(LIMITS.clock_hold_s / 2)
            await assert_kept(node, orders)
            world.set_clocks(0)
            await asyncio.sleep(2 * LIMITS.scan_interval_s)
            assert node.remote_log.node_problems() == ()
            await asyncio.sleep(LIMITS.clock_hold_s)
            assert node.finished(orders.partition) == SEGMENTS
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_a_time_that_stands_for_the_whole_while_is_gone_by(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=LIMITS) as node:
            await started(node, orders)
            world.set_clocks(YEAR_MS)
            await assert_kept(node, orders)
            await asyncio.sleep(LIMITS.clock_hold_s + LIMITS.retention_interval_s)
            await asyncio.sleep(LIMITS.delete_delay_s + LIMITS.upload_margin_s)
            assert node.rows(orders.partition) == []
            assert node.remote_log.node_problems() == ()
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_copying_goes_on_meanwhile_and_begins_with_new_partitions(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=LIMITS) as node:
            await started(node, orders)
            world.set_clocks(YEAR_MS)
            await assert_kept(node, orders)
            orders.write(25, 30, end=35)
            new = KafkaLog.create(orders.log_dir, "payments", entries=((0, 0),))
            new.write(0, 10, end=15)
            await asyncio.sleep(NOTICED_S)
            assert node.finished(orders.partition) == [*SEGMENTS, (20, 24), (25, 29)]
            assert node.finished(new.partition) == [(0, 9)]
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("meanwhile", ["before the node ends", "while it is down"])
def test_a_restart_takes_nothing_either(tmp_path: Path, orders: KafkaLog, meanwhile: str) -> None:
    async def main() -> None:
        world: World = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=LIMITS) as node:
            await started(node, orders)
            if meanwhile == "before the node ends":
                world.set_clocks(YEAR_MS)
                await assert_kept(node, orders)
        world.set_clocks(YEAR_MS)
        async with world.boot(limits=LIMITS) as node:
            await node.remote_log.start()
            await assert_kept(node, orders)
            await node.remote_log.close()

    run_virtually(main)
