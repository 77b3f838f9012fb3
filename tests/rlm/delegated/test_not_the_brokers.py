"""Partitions that this node copies itself, though the broker's plug-in says or asks otherwise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.leadership.leadership import Leads, LocalLogStart, TopicConfig
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import announcement, broker_of
from tests.rlm.delegated.plugin_client import ToldError, client_of
from tests.rlm.held_segments import ROOM, lost, retention, units
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually

NOT_TIERED_BY_THE_BROKER = TopicConfig("delete", -1, -1, False)


@pytest.mark.parametrize("mistaken", [False, True])
def test_a_mistaken_announcement_ends_no_hold(
    tmp_path: Path, orders: KafkaLog, mistaken: bool
) -> None:
    is_down = False

    async def store(name: str) -> None:
        if is_down and name.startswith("before put"):
            raise RetryLater("down")

    async def main() -> None:
        nonlocal is_down
        broker = broker_of(orders)
        broker.config = NOT_TIERED_BY_THE_BROKER
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, data_plane=True, hold=ROOM, hook=store) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            is_down = True
            if mistaken:
                node.parts.plugin.announce(announcement(orders.partition))
            await asyncio.sleep(30)
            orders.write(20, 30, 40, end=45)
            await asyncio.sleep(30)
            assert units(tmp_path) == ["20", "30"]
            retention(orders, 0, 10, 20, start=30)
            broker.local_start = LocalLogStart(30, 0)
            broker.words["orders", 0] = Leads(0, 45)
            is_down = False
            # A mistaken plug-in is silent from here on: the broker runs without it.
            await asyncio.sleep(900)
            assert lost(node.events) == []
            assert node.finished(orders.partition)[-1] == (30, 39)

    run_virtually(main)


def test_a_plug_in_deletes_no_partition_that_this_node_copies(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        broker.config = NOT_TIERED_BY_THE_BROKER
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, data_plane=True) as node:
            plugin = client_of(node)
            await node.remote_log.start()
            await asyncio.sleep(30)
            await plugin.call("announce", plugin_bodies.announce(announcement()))
            for state in list(PartitionDeleteState)[:2]:
                put = RemotePartitionDeleteMetadata(orders.partition, 1, 5, state)
                with pytest.raises(ToldError, match="mode sidecar"):
                    await plugin.call("delete-partition", plugin_bodies.delete_partition(put))
            await asyncio.sleep(600)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]

    run_virtually(main)
