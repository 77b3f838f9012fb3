"""A leader that does not know yet what is copied, and its expiration (KAFKA-20732)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.delegated import fresh_leaders
from rlm.leadership.leadership import LocalLogStart, NoAnswer, NotLeading, TopicConfig
from rlmm.segment import SegmentState
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import COUNTED, NO_TOPICS, TIERED, announcement, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, ToldError, client_of, segment
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
CUSTOM = b"\x01"
NOTHING = -1
Deed = Callable[[Node, FakeBroker, PluginClient], Awaitable[None]]


def with_two_of_three_tiered(tmp_path: Path, orders: KafkaLog, deed: Deed) -> None:
    """A broker whose disk begins at 0; the tier has 0 to 19."""

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
                for number, start in enumerate((0, 10), 1):
                    await plugin.add(segment(orders.partition, number, start, start + 9))
                    row = segment(orders.partition, number, start, start + 9)
                    await plugin.update(row, FINISHED, CUSTOM)
                await deed(node, broker, plugin)
            await node.remote_log.close()

    run_virtually(main)


async def listed(plugin: PluginClient, orders: KafkaLog) -> int:
    return len((await plugin.page(orders.partition))[1] or ())


async def held(plugin: PluginClient, orders: KafkaLog) -> str:
    with pytest.raises(ToldError) as told:
        await plugin.page(orders.partition)
    assert told.value.kind == "retry_later"
    return told.value.detail


@pytest.mark.parametrize("config", [COUNTED, TIERED])
def test_it_gets_its_list_once_it_takes_for_copied_what_is(
    tmp_path: Path, orders: KafkaLog, config: TopicConfig
) -> None:
    """Also without `retention.bytes`, which it may hear of before it counts."""

    async def deed(_node: Node, broker: FakeBroker, plugin: PluginClient) -> None:
        broker.config = config
        for copied in (NOTHING, 9, 18):
            broker.copied = copied
            assert f"up to offset {copied} for copied" in await held(plugin, orders)
        assert len((await plugin.page(orders.partition, 0))[1] or ()) == 2, "it counts nothing yet"
        broker.copied = 19
        assert await listed(plugin, orders) == 2

    with_two_of_three_tiered(tmp_path, orders, deed)


def test_what_is_not_on_its_disk_counts_once(tmp_path: Path, orders: KafkaLog) -> None:
    async def deed(_node: Node, broker: FakeBroker, plugin: PluginClient) -> None:
        broker.copied = NOTHING
        orders.delete_segment(0)
        orders.delete_segment(10)
        broker.local_start = LocalLogStart(20, 0)
        plugin.seq = 2
        await plugin.announce(orders.partition)
        await asyncio.sleep(1)
        assert await listed(plugin, orders) == 2

    with_two_of_three_tiered(tmp_path, orders, deed)


def test_a_list_waits_for_a_broker_that_does_not_tell(tmp_path: Path, orders: KafkaLog) -> None:
    async def deed(_node: Node, broker: FakeBroker, plugin: PluginClient) -> None:
        broker.copied = NoAnswer("it hangs")
        assert "highest copied offset: it hangs" in await held(plugin, orders)
        broker.copied = NotLeading()
        assert "it does not lead" in await held(plugin, orders)

    with_two_of_three_tiered(tmp_path, orders, deed)


def test_one_that_never_learns_is_told_of(
    tmp_path: Path,
    orders: KafkaLog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """remote.log.copy.disable=true since its start."""
    monkeypatch.setattr(fresh_leaders, "TOLD_AFTER_S", 2.0)

    async def deed(node: Node, broker: FakeBroker, plugin: PluginClient) -> None:
        caplog.set_level(logging.WARNING, "rlm.delegated")
        tip, broker.copied = orders.partition, NOTHING
        await held(plugin, orders)
        assert node.remote_log.status(tip).last_error is None, "a copy ends just now"
        await asyncio.sleep(2.5)
        text = await held(plugin, orders)
        await held(plugin, orders)
        shown = node.remote_log.status(tip).last_error
        assert shown is not None
        assert shown.text == text
        assert [each.message for each in caplog.records] == [text]
        broker.copied = 19
        assert await listed(plugin, orders) == 2
        broker.copied = NOTHING  # another log directory: it is opened anew
        caplog.clear()
        await held(plugin, orders)
        assert not caplog.records

    with_two_of_three_tiered(tmp_path, orders, deed)


@pytest.mark.parametrize(
    ("version", "copied", "is_listed"),
    [
        ("4.3.2", NOTHING, True),
        ("4.4.0", NOTHING, True),
        ("5.0.0-SNAPSHOT", NOTHING, True),
        ("4.4.0", 9, False),
        ("4.3.1", NOTHING, False),
        ("4.3", NOTHING, False),
        ("7.9.1-ccs", NOTHING, False),
        ("?", NOTHING, False),
        ("", NOTHING, False),
        ("5." + 5_000 * "9", NOTHING, False),
    ],
)
def test_brokers_that_ask_behind_the_list_get_it(
    tmp_path: Path, orders: KafkaLog, version: str, copied: int, is_listed: bool
) -> None:
    """Where they have no offset; one that is too low they believe, too."""

    async def deed(_node: Node, broker: FakeBroker, plugin: PluginClient) -> None:
        said = replace(announcement(orders.partition, seq=2), kafka_version=version)
        plugin.seq = 2
        await plugin.call("announce", plugin_bodies.announce(said))
        await asyncio.sleep(1)
        broker.copied = copied
        if is_listed:
            assert await listed(plugin, orders) == 2
        else:
            assert f"up to offset {copied} for copied" in await held(plugin, orders)

    with_two_of_three_tiered(tmp_path, orders, deed)


@pytest.mark.parametrize("way", ["deleted", "disabled"])
def test_a_list_that_comes_once_is_answered(tmp_path: Path, orders: KafkaLog, way: str) -> None:
    async def deed(_node: Node, broker: FakeBroker, plugin: PluginClient) -> None:
        broker.copied = NOTHING
        if way == "disabled":
            broker.config = replace(COUNTED, remote_storage_enable=False)
        else:
            directory = orders.log_dir / f"{orders.partition.topic}-{orders.partition.partition}"
            directory.rename(directory.with_name(f"{directory.name}.{'1' * 32}-delete"))
            broker.unknown_topics = True
        assert await listed(plugin, orders) == 2

    with_two_of_three_tiered(tmp_path, orders, deed)
