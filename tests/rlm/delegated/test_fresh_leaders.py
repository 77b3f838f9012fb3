"""A leader that does not know yet what is copied, and its expiration (KAFKA-20732)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.delegated import fresh_leaders
from rlm.delegated.fresh_leaders import FreshLeaders
from rlm.leadership.leadership import Leads, TopicConfig
from rlmm.segment import SegmentState
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import COUNTED, NO_TOPICS, TIERED, announcement, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, ToldError, client_of, segment
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
CUSTOM = b"\x01"
Deed = Callable[[FakeBroker, PluginClient], Awaitable[None]]


def with_a_fresh_leader(tmp_path: Path, orders: KafkaLog, deed: Deed) -> None:
    """A broker that was started again, of a partition with one segment in the tier."""

    async def main() -> None:
        broker = broker_of(orders)
        broker.config = COUNTED
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True) as node:
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                await plugin.announce(orders.partition)
                await asyncio.sleep(1)
                await plugin.add(segment(orders.partition, 1, 0, 9))
                await plugin.update(segment(orders.partition, 1, 0, 9), FINISHED, CUSTOM)
                assert await listed(plugin, orders) == 1, "what copies has asked"
                plugin.session += 1
                await plugin.announce(orders.partition)
                await asyncio.sleep(1)
                await deed(broker, plugin)
            await node.remote_log.close()

    run_virtually(main)


async def listed(plugin: PluginClient, orders: KafkaLog) -> int:
    return len((await plugin.page(orders.partition))[1] or ())


async def held(plugin: PluginClient, orders: KafkaLog) -> str:
    with pytest.raises(ToldError) as told:
        await plugin.page(orders.partition)
    assert told.value.kind == "retry_later"
    return told.value.detail


def test_it_gets_its_list_once_it_has_asked_what_is_copied(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def deed(_: FakeBroker, plugin: PluginClient) -> None:
        caplog.set_level(logging.INFO, "rlm.delegated")
        assert "has not asked for the highest copied offset" in await held(plugin, orders)
        assert "has not asked" in await held(plugin, orders)
        assert len((await plugin.page(orders.partition, 0))[1] or ()) == 1, "it counts nothing yet"
        assert await plugin.highest(orders.partition, 0) == 9
        assert await listed(plugin, orders) == 1
        assert sum("waits until" in each.message for each in caplog.records) == 1

    with_a_fresh_leader(tmp_path, orders, deed)


def test_nothing_copied_in_the_first_of_its_epochs_is_an_answer_too(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def deed(broker: FakeBroker, plugin: PluginClient) -> None:
        orders.set_epochs((0, 0), (1, 25))
        broker.words[("orders", 0)] = Leads(1, 25)
        plugin.seq = 2
        await plugin.announce(orders.partition)
        await asyncio.sleep(1)
        assert await plugin.highest(orders.partition, 1) is None
        assert "has not asked" in await held(plugin, orders), "it asks for the epoch before"

    with_a_fresh_leader(tmp_path, orders, deed)


def test_a_broker_that_never_asks_is_not_held_back_for_good(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_leaders, "HELD_FOR_S", 3.0)

    async def deed(_broker: FakeBroker, plugin: PluginClient) -> None:
        for _ in range(2):
            assert "has not asked" in await held(plugin, orders)
            await asyncio.sleep(1.5)
        assert await listed(plugin, orders) == 1

    with_a_fresh_leader(tmp_path, orders, deed)


@pytest.mark.parametrize("config", [TIERED, replace(COUNTED, remote_storage_enable=False)])
def test_where_nothing_is_counted_nothing_is_held_back(
    tmp_path: Path, orders: KafkaLog, config: TopicConfig
) -> None:
    async def deed(broker: FakeBroker, plugin: PluginClient) -> None:
        broker.config = config
        assert await listed(plugin, orders) == 1

    with_a_fresh_leader(tmp_path, orders, deed)


def test_the_list_of_a_deleted_topic_comes_once(tmp_path: Path, orders: KafkaLog) -> None:
    async def deed(broker: FakeBroker, plugin: PluginClient) -> None:
        directory = orders.log_dir / f"{orders.partition.topic}-{orders.partition.partition}"
        directory.rename(directory.with_name(f"{directory.name}.{'1' * 32}-delete"))
        broker.unknown_topics = True
        assert await listed(plugin, orders) == 1

    with_a_fresh_leader(tmp_path, orders, deed)


def test_a_replica_that_left_and_came_again_is_a_new_one(tmp_path: Path, orders: KafkaLog) -> None:
    async def deed(_: FakeBroker, plugin: PluginClient) -> None:
        tip = orders.partition
        assert await plugin.highest(tip, 0) == 9
        plugin.seq = 2
        stops = replace(announcement(session=2, seq=2), base_seq=1, stopped=(tip,))
        await plugin.call("announce", plugin_bodies.announce(stops))
        plugin.seq = 3
        comes = replace(announcement(tip, session=2, seq=3), base_seq=2)
        await plugin.call("announce", plugin_bodies.announce(comes))
        await asyncio.sleep(1)
        assert "has not asked" in await held(plugin, orders)

    with_a_fresh_leader(tmp_path, orders, deed)


def test_what_an_earlier_session_was_told_does_not_count(orders: KafkaLog) -> None:
    fresh, tip = FreshLeaders(lambda: 5.0), orders.partition
    fresh.announced(announcement(tip, session=2))
    fresh.told(tip, uuid(1))
    assert fresh.why_not_expire(tip) is not None
    fresh.told(tip, uuid(2))
    assert fresh.why_not_expire(tip) is None
    fresh.announced(announcement(tip, session=2, seq=2))  # the whole set again
    assert fresh.why_not_expire(tip) is None
    fresh.announced(announcement(session=2, seq=3))
    fresh.announced(announcement(tip, session=2, seq=4))
    assert fresh.why_not_expire(tip) is not None
