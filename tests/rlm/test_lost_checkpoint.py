"""The broker's leader epoch checkpoint was lost, and an election began it anew: what lies below its
first epoch is on the disk all the same, and is never recorded as lost for that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats import offset_checkpoint
from kafka_formats.offset_checkpoint import LOG_START_FILE
from rlm.broker_answers import LocalLogStart
from rlm.copy_plan import WhyNot
from rlm.leadership import Leads, NoAnswer
from rlmm.partition_state import PartitionState
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, World, new_world
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """0 to 24, the active segment begins at 20."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def lose_the_checkpoint(log: KafkaLog) -> None:
    """20 to 44 are sealed and not copied; the election at epoch 1 found no checkpoint."""
    log.write(20, 30, 40, 45, end=50)
    log.set_epochs((1, 45))
    log.set_high_watermark(50)


def state_of(node: Node, log: KafkaLog) -> PartitionState:
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    return state


def why_not(node: Node) -> tuple[WhyNot | None, str]:
    page = node.remote_log.statuses()[0]
    return page.why_not_copying, page.why_not_text


async def copy_what_is_sealed(world: World, log: KafkaLog) -> None:
    async with world.boot() as node:
        await node.remote_log.start()
        await asyncio.sleep(A_FEW_SCANS_S)
        assert node.finished(log.partition) == [(0, 9), (10, 19)]


def test_whole_segments_below_the_first_epoch_are_waited_for_and_told(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_the_checkpoint(orders)
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            why, text = why_not(node)
            assert why is WhyNot.EPOCHS_MISSING
            assert "segment 20 to 29" in text
            assert state_of(node, orders).lost_ranges == ()
            assert state_of(node, orders).next_offset == 20
            assert "epochs_missing" in [each.name for each in node.remote_log.node_problems()]
            orders.set_epochs((0, 0), (1, 45))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert state_of(node, orders).next_offset == 45
            assert state_of(node, orders).lost_ranges == ()

    run_virtually(main)


@pytest.mark.parametrize("said_by", ["checkpoint", "broker"])
def test_what_the_broker_says_is_below_its_log_start_is_gone(
    tmp_path: Path, orders: KafkaLog, said_by: str
) -> None:
    """DeleteRecords: the segments below go some time later."""
    broker = FakeBroker({ORDERS: Leads(1, 50)}, local_start=NoAnswer("not supported"))

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_the_checkpoint(orders)
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            if said_by == "broker":
                broker.local_start = LocalLogStart(45, 1)
            else:
                (orders.log_dir / LOG_START_FILE).write_bytes(
                    offset_checkpoint.encode({ORDERS: 45})
                )
            await asyncio.sleep(A_FEW_SCANS_S)
            (lost,) = state_of(node, orders).lost_ranges
            assert (lost.start, lost.end) == (20, 44)

    run_virtually(main)


def test_a_tiers_first_log_start_does_not_pass_over_them(tmp_path: Path, orders: KafkaLog) -> None:
    lose_the_checkpoint(orders)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            assert state_of(node, orders).log_start_offset == -1

    run_virtually(main)
