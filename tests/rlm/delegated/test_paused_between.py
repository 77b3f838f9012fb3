"""A partition that its brokers tier, paused for a while: all that the tier has is theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import NoAnswer
from rlm.leadership.unseen_disk import EpochAt
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionModeChange
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import PluginClient, refused, segment
from tests.rlm.delegated.test_older_history import (
    DELETING,
    FINISHED,
    lead,
    listed,
    state_of,
    switched,
)
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node
from tests.rlm.virtual_time import run_virtually

FROM_THE_BEGINNING = ((0, 0), (1, 25))


async def set_mode(node: Node, orders: KafkaLog, mode: Mode) -> None:
    before = state_of(node, orders).mode_offset
    change = PartitionModeChange(orders.partition, mode, before)
    await node.metadata.set_partition_mode(change)


async def copy_both(plugin: PluginClient, orders: KafkaLog) -> None:
    """Segments 0 to 9 and 10 to 19."""
    for number, base in enumerate((0, 10)):
        row = segment(orders.partition, 1 + number, base, base + 9)
        await plugin.add(row)
        await plugin.update(row, FINISHED, b"custom")


def retain_locally(orders: KafkaLog) -> None:
    """A broker that tiers keeps the epochs of its tier, and writes its whole log's start."""
    orders.delete_segment(0)
    orders.delete_segment(10)
    orders.set_epochs(*FROM_THE_BEGINNING)
    orders.set_log_start(0)


def test_a_broker_goes_on_whose_local_retention_took_the_head(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with switched(tmp_path, orders, broker, entries=FROM_THE_BEGINNING) as (node, plugin):
            await copy_both(plugin, orders)
            retain_locally(orders)
            await set_mode(node, orders, Mode.PAUSED)
            await asyncio.sleep(60)
            assert not (await plugin.ready(tip))[0]
            await set_mode(node, orders, Mode.DELEGATED)
            await asyncio.sleep(60)
            assert await plugin.ready(tip) == (True, "")
            assert node.finished(tip) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_a_broker_goes_on_whose_retention_went_past_what_it_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The first segment is deleted; the second was to be when the pause came."""

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with switched(tmp_path, orders, broker, entries=FROM_THE_BEGINNING) as (node, plugin):
            await copy_both(plugin, orders)
            retain_locally(orders)
            first, second = await listed(plugin, orders)
            orders.set_log_start(20)
            broker.tiered_start = EpochAt(0, 20)
            await plugin.update(first, DELETING)
            await set_mode(node, orders, Mode.PAUSED)
            await asyncio.sleep(60)
            await set_mode(node, orders, Mode.DELEGATED)
            await asyncio.sleep(60)
            assert await plugin.ready(tip) == (True, "")
            assert "log began at 20" in (await refused(plugin.update(second, DELETING))).detail
            broker.tiered_start = EpochAt(0, 22)
            await plugin.update(second, DELETING)
            assert node.finished(tip) == []

    run_virtually(main)


def test_where_nodes_copied_before_the_brokers_log_start_decides(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A log that is tiered starts below its disk. Until the broker says where, nothing is known."""

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with switched(tmp_path, orders, broker) as (node, plugin):
            retain_locally(orders)
            broker.tiered_start = NoAnswer("it starts")
            await set_mode(node, orders, Mode.PAUSED)
            await set_mode(node, orders, Mode.DELEGATED)
            await asyncio.sleep(60)
            why = node.remote_log.status(tip)
            assert why.why_not_copying is WhyNot.BROKER_UNAVAILABLE
            assert "it starts" in why.why_not_text
            broker.tiered_start = EpochAt(0, 20)
            await asyncio.sleep(60)
            why = node.remote_log.status(tip)
            assert why.why_not_copying is WhyNot.MODE
            assert "from 20 on" in why.why_not_text
            broker.tiered_start = EpochAt(0, 9)
            await asyncio.sleep(60)
            assert await plugin.ready(tip) == (True, "")
            assert node.finished(tip) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_a_log_start_of_an_earlier_leadership_decides_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with switched(tmp_path, orders, broker) as (node, plugin):
            retain_locally(orders)
            await set_mode(node, orders, Mode.PAUSED)
            await asyncio.sleep(60)
            broker.tiered_start = EpochAt(0, 20)
            lead(broker, orders, 2, (0, 0), (1, 25), (2, 26))
            await set_mode(node, orders, Mode.DELEGATED)
            await asyncio.sleep(60)
            assert node.remote_log.status(tip).why_not_copying is WhyNot.MODE
            assert not (await plugin.ready(tip))[0]

    run_virtually(main)
