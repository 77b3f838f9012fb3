"""A cluster that starts from an older snapshot, of a topic that its brokers tier themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rlm.leadership.leadership import Leads
from rlmm.metadata_log import SnapshotId
from rlmm.segment import SegmentState
from tests.rlm.after_disaster import ANEW, after_the_disaster, later, of_base
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import PluginClient, client_of, files_of, of_disk
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import World, new_world
from tests.rlm.virtual_time import run_virtually


async def copied_by_the_broker(world: World, orders: KafkaLog, broker: FakeBroker) -> SnapshotId:
    """Segments at 0 and 10 in the snapshot, and at 20 and 30 behind it."""
    async with world.boot(data_plane=True, broker=broker) as node:
        plugin = client_of(node)
        await node.remote_log.start()
        async with plugin.http:
            await plugin.announce(orders.partition)
            await asyncio.sleep(30)
            await copy(plugin, orders, 0, 10)
            snapshot = await node.metadata.take_snapshot()
            later(orders)
            await copy(plugin, orders, 20, 30)
        await node.remote_log.close()
    return snapshot


async def copy(plugin: PluginClient, orders: KafkaLog, *bases: int) -> None:
    for base in bases:
        row = of_disk(orders, base + 1, base, base + 9)
        await plugin.add(row)
        custom = await plugin.copy(files_of(orders, row))
        await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, custom)


def test_what_the_broker_deleted_keeps_nothing_from_being_adopted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Its retention went past the end of the snapshot; it does nothing before it is ready."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        tip, broker = orders.partition, broker_of(orders)
        snapshot = await copied_by_the_broker(world, orders, broker)
        for base in (0, 10, 20):
            await world.store.delete_many(await of_base(world, base, ""))
            orders.delete_segment(base)
        orders.set_log_start(30)
        orders.set_epochs((0, 30), (1, 45))
        broker.words[(tip.topic, tip.partition)] = Leads(1, 45)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            plugin = client_of(node)
            await node.remote_log.start()
            async with plugin.http:
                await plugin.announce(tip)
                await asyncio.sleep(60)
                assert await plugin.ready(tip) == (True, "")
                assert node.finished(tip) == [(0, 9), (10, 19), (30, 39)]
            await node.remote_log.close()

    run_virtually(main)
