"""A cluster that starts from an older snapshot, of a topic that its brokers tier themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.leadership.leadership import Leads
from rlm.leadership.unseen_disk import EpochAt
from rlmm.metadata_log import SnapshotId
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionModeChange
from rlmm.segment import SegmentState
from tests.rlm.after_disaster import (
    ANEW,
    after_the_disaster,
    copied_then_ahead,
    later,
    of_base,
    record_reconciled,
)
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import (
    PluginClient,
    client_of,
    files_of,
    of_disk,
    refused,
)
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import World, new_world
from tests.rlm.virtual_time import run_virtually


async def copied_by_the_broker(
    world: World, orders: KafkaLog, broker: FakeBroker, before: tuple[int, ...] = (0, 10)
) -> SnapshotId:
    """Segments at `before` in the snapshot, and of 0 to 30 the others behind it."""
    async with world.boot(data_plane=True, broker=broker) as node:
        plugin = client_of(node)
        await node.remote_log.start()
        async with plugin.http:
            await plugin.announce(orders.partition)
            await asyncio.sleep(30)
            await copy(plugin, orders, *before)
            snapshot = await node.metadata.take_snapshot()
            later(orders)
            await copy(plugin, orders, *(base for base in (0, 10, 20, 30) if base not in before))
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


def test_a_hole_on_the_brokers_disk_is_copied_and_what_lies_above_adopted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        tip, broker = orders.partition, broker_of(orders)
        snapshot = await copied_by_the_broker(world, orders, broker)
        await world.store.delete_many(await of_base(world, 20, ""))
        for base in (0, 10):
            orders.delete_segment(base)
        led_on(orders, broker)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            plugin = client_of(node)
            await node.remote_log.start()
            async with plugin.http:
                await plugin.announce(tip)
                await asyncio.sleep(60)
                assert await plugin.ready(tip) == (True, "")
                assert node.finished(tip) == [(0, 9), (10, 19)]
                assert await plugin.highest(tip, 0) == 19
                await copy(plugin, orders, 20)
                await asyncio.sleep(60)
                assert node.finished(tip) == [(0, 9), (10, 19), (20, 29), (30, 39)]
                state = node.metadata.partition_state(tip)
                assert state is not None
                assert not state.adopting
                assert not state.lost_ranges
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("level", [1, 2])
def test_a_hole_that_is_on_no_disk_of_the_broker_is_told_and_keeps_nobody_waiting(
    tmp_path: Path, orders: KafkaLog, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        tip, broker = orders.partition, broker_of(orders)
        snapshot = await copied_by_the_broker(world, orders, broker)
        await world.store.delete_many(await of_base(world, 20, ""))
        for base in (0, 10, 20):
            orders.delete_segment(base)
        led_on(orders, broker)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            if level > 1:
                await node.metadata.finalise_feature_level(level)
            plugin = client_of(node)
            await node.remote_log.start()
            async with plugin.http:
                await plugin.announce(tip)
                await asyncio.sleep(60)
                assert await plugin.ready(tip) == (True, "")
                assert node.finished(tip) == [(0, 9), (10, 19), (30, 39)]
                assert await plugin.look_up(tip, 0, 25) is None
                state = node.metadata.partition_state(tip)
                assert state is not None
                recorded = [(each.start, each.end) for each in state.lost_ranges]
                assert recorded == ([(20, 29)] if level > 1 else [])
                assert "LOST: offsets 20 to 29" in caplog.text
                error = node.remote_log.status(tip).last_error
                assert error is not None
                assert "offsets 20 to 29" in error.text
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("level", [1, 2])
def test_a_hole_at_the_head_of_what_no_snapshot_knows_makes_no_broker_ready_before_the_rest(
    tmp_path: Path, orders: KafkaLog, level: int
) -> None:
    """A broker that finds an empty tier moves its log start to its disk, and deletes all below."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        tip, broker = orders.partition, broker_of(orders)
        snapshot = await copied_by_the_broker(world, orders, broker, before=())
        await world.store.delete_many(await of_base(world, 0, ""))
        for base in (0, 10):
            orders.delete_segment(base)
        led_on(orders, broker)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            if level > 1:
                await node.metadata.finalise_feature_level(level)
            plugin = client_of(node)
            await node.remote_log.start()
            async with plugin.http:
                await plugin.announce(tip)
                await asyncio.sleep(60)
                assert await plugin.ready(tip) == (True, "")
                assert node.finished(tip) == [(10, 19), (20, 29), (30, 39)]
                assert await plugin.highest(tip, 0) == 39
            await node.remote_log.close()

    run_virtually(main)


def led_on(orders: KafkaLog, broker: FakeBroker) -> None:
    """It led on after the disaster: its log starts at 0, in the tier."""
    orders.set_log_start(0)
    orders.set_epochs((0, 0), (1, 45))
    broker.words[(orders.partition.topic, orders.partition.partition)] = Leads(1, 45)


def test_what_was_adopted_may_be_from_before_the_mode(tmp_path: Path, orders: KafkaLog) -> None:
    """The brokers tier it since the snapshot; a later leader's log begins above."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        tip, broker = orders.partition, broker_of(orders)
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            before = node.metadata.partition_state(tip)
            assert before is not None
            await node.metadata.set_partition_mode(
                PartitionModeChange(tip, Mode.DELEGATED, before.mode_offset)
            )
            plugin = client_of(node)
            await node.remote_log.start()
            async with plugin.http:
                await lead_at(1, plugin, orders, broker)
                await record_reconciled(node)
                broker.tiered_start = EpochAt(0, 35)
                await lead_at(2, plugin, orders, broker)
                for row in (await plugin.page(tip))[1] or ():
                    told = await refused(plugin.update(row, SegmentState.DELETE_SEGMENT_STARTED))
                    assert "log began at 35" in told.detail
                assert node.finished(tip) == [(0, 9), (10, 19), (20, 29), (30, 39)]
                broker.tiered_start = EpochAt(0, 40)  # retention
                for row in (await plugin.page(tip))[1] or ():
                    await plugin.update(row, SegmentState.DELETE_SEGMENT_STARTED)
                assert node.finished(tip) == []
            await node.remote_log.close()

    run_virtually(main)


async def lead_at(epoch: int, plugin: PluginClient, orders: KafkaLog, broker: FakeBroker) -> None:
    tip = orders.partition
    broker.words[(tip.topic, tip.partition)] = Leads(epoch, 45)
    orders.set_epochs((0, 0), (epoch, 45))
    plugin.seq += 1
    await plugin.announce(tip)
    await asyncio.sleep(60)
    assert await plugin.ready(tip) == (True, "")
