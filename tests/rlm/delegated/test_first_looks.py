"""Nothing of what a broker has just announced is read before a look: so that comes at once, and is
repeated for a while where it did not find out what a new leader has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.scanner import TopicPartition
from rlm.delegated.plugin import ONE_CHANGE_MAX
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer, NotLeading
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionClaim
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import NO_TOPICS, announcement, broker_of
from tests.rlm.delegated.plugin_client import (
    PluginClient,
    client_of,
    files_of,
    of_disk,
    refused,
    segment,
)
from tests.rlm.delegated.test_copies import beside
from tests.rlm.delegated.test_diverged_tail import (
    copied_across,
    elected_unclean,
    log_of_two_epochs,
)
from tests.rlm.delegated.test_unseen_disk import NAME, far
from tests.rlm.delegated.test_unseen_disk import broker_of as telling_broker
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, new_world
from tests.rlm.planner_facts import PARTITION as TIP
from tests.rlm.planner_facts import epochs, uuid
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
SELDOM = replace(LIMITS, scan_interval_s=3_000.0)
"""The looks of the interval come too late for every test that has it."""


@asynccontextmanager
async def announced_late(
    tmp_path: Path, orders: KafkaLog, broker: FakeBroker | None, after_s: float
) -> AsyncIterator[PluginClient]:
    world = new_world(tmp_path, (orders.log_dir,))
    async with world.boot(broker=broker, topics=NO_TOPICS, limits=SELDOM) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            await asyncio.sleep(after_s)
            await plugin.announce(orders.partition)
            yield plugin
        await node.remote_log.close()


def test_a_node_that_can_not_ask_its_broker_looks_at_once(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with announced_late(tmp_path, orders, None, 20.0) as plugin:
            await asyncio.sleep(1)
            assert await plugin.ready(orders.partition) == (True, "")

    run_virtually(main)


class SlowBroker(FakeBroker):
    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        if partitions:
            await asyncio.sleep(2)
        return await FakeBroker.leadership(self, partitions)


def test_a_node_with_so_many_partitions_that_it_asks_seldom_looks_at_once(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        quick = broker_of(orders)
        broker = SlowBroker(quick.words, quick.config)
        async with announced_late(tmp_path, orders, broker, 1.0) as plugin:
            await asyncio.sleep(10)  # the pass behind the look makes the pause long
            plugin.seq += 1
            await plugin.announce(orders.partition)
            await asyncio.sleep(4)
            assert await plugin.ready(orders.partition) == (True, "")

    run_virtually(main)


def test_a_leader_that_tells_nothing_in_the_beginning_is_asked_again_at_once(
    tmp_path: Path,
) -> None:
    """A leader is new for the moment that its followers take to follow it."""

    async def main() -> None:
        broker = telling_broker()
        word, broker.words[NAME] = broker.words[NAME], NoAnswer("offset_not_available")
        async with far(tmp_path, broker) as (_, plugin):
            await asyncio.sleep(6)
            await plugin.announce(TIP)
            await asyncio.sleep(1.2)
            broker.words[NAME] = word
            await asyncio.sleep(1.2)
            assert (await plugin.ready(TIP))[0]
            row = segment(TIP, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, b"custom")
            assert await plugin.look_up(TIP, 0, 5) is not None

    run_virtually(main)


async def nothing_is_read(plugin: PluginClient, row: RemoteLogSegmentMetadata) -> None:
    tip = row.segment_id.partition
    for call in (plugin.look_up(tip, 0, 12), plugin.fetch(row, 0, row.size_bytes)):
        assert (await refused(call)).kind == "retry_later"


async def the_tail_is_cut(plugin: PluginClient, tip: TopicIdPartition) -> None:
    found = await plugin.look_up(tip, 0, 12)
    assert found is not None
    assert found.end_offset == 14


def test_a_look_that_does_not_find_the_epoch_of_the_leadership_counts_for_nothing(
    tmp_path: Path,
) -> None:
    """[LOSS-9] The disk shows it a moment later: until then it is the log of before."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            row = of_disk(orders, 1, 10, 19)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            assert await plugin.look_up(tip, 0, 12) is not None
            broker.words[tip.topic, 0] = Leads(2, 25)
            plugin.seq += 1
            await plugin.announce(tip)
            await asyncio.sleep(20)
            assert (await refused(plugin.look_up(tip, 0, 12))).kind == "retry_later"
            for _ in range(2):  # the files, the checkpoint, and files that are newer than that
                orders.write_across(10, 15, 20, epochs=(0, 2))
                orders.write(20, end=25, epoch=2)
                orders.set_epochs((0, 0), (2, 15))
            await asyncio.sleep(20)
            await the_tail_is_cut(plugin, tip)

    run_virtually(main)


@pytest.mark.parametrize("damaged", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_look_that_can_not_read_the_new_leaders_directory_counts_for_nothing(
    tmp_path: Path, damaged: str
) -> None:
    """[LOSS-9] What it knows of the log is from before: the tail that the election cut."""
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders, epoch=1)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            row = await copied_across(plugin, orders)
            elected_unclean(orders, broker)
            file = orders.directory / damaged
            whole = file.read_bytes()
            file.write_bytes(whole[:-3])
            plugin.seq += 1
            await plugin.announce(tip)
            await asyncio.sleep(20)
            assert "at byte" in (await plugin.ready(tip))[1]
            await nothing_is_read(plugin, row)
            file.write_bytes(whole)
            await asyncio.sleep(20)
            await the_tail_is_cut(plugin, tip)

    run_virtually(main)


@pytest.mark.parametrize("word", [NoAnswer("down"), NotLeading()])
def test_a_look_at_a_leader_that_does_not_answer_counts_for_nothing(
    tmp_path: Path, word: BrokerWord
) -> None:
    """[LOSS-9] A new leader has no answer for a moment, and writes the checkpoint then, too."""
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders, epoch=1)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            row = await copied_across(plugin, orders)
            broker.words[tip.topic, 0] = word
            plugin.seq += 1
            await plugin.announce(tip)
            await asyncio.sleep(20)
            await nothing_is_read(plugin, row)
            elected_unclean(orders, broker)
            await asyncio.sleep(20)
            await the_tail_is_cut(plugin, tip)

    run_virtually(main)


def test_a_leader_that_goes_on_is_read_without_a_look_while_nobody_else_claimed(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A broker names what it leads at each change of the replicas in sync: whenever a follower
    starts again, consumers would wait.
    """

    async def main() -> None:
        tip = orders.partition
        async with beside(tmp_path, orders) as (node, plugin):
            node.parts.asked_looks.look = AsyncMock()  # no look at it alone

            async def says(
                *leaders: TopicIdPartition,
                followers: tuple[TopicIdPartition, ...] = (),
                changes: int = 1,
            ) -> None:
                base, plugin.seq = plugin.seq, plugin.seq + changes
                said = announcement(*leaders, seq=plugin.seq)
                said = replace(said, base_seq=base, followers=followers)
                await plugin.call("announce", plugin_bodies.announce(said))
                await asyncio.sleep(0.05)

            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            for _ in range(3):
                await says(tip)
                assert await plugin.look_up(tip, 0, 5) is not None
                assert await plugin.fetch(row, 0, 5)
                assert not (await plugin.ready(tip))[0], "what is decided waits all the same"
            await says(followers=(tip,))
            await says(tip)
            assert (await refused(plugin.look_up(tip, 0, 5))).kind == "retry_later"
            await asyncio.sleep(2)
            await says(tip)
            assert await plugin.look_up(tip, 0, 5) is not None
            # It may have followed between two changes, an unclean leader say.
            await says(tip, changes=2)
            assert (await refused(plugin.look_up(tip, 0, 5))).kind == "retry_later"
            await asyncio.sleep(2)
            await says(tip)
            assert await plugin.look_up(tip, 0, 5) is not None
            # Nor does a part of a long announcement show how often a partition changed.
            many = tuple(replace(tip, partition=each) for each in range(1, ONE_CHANGE_MAX + 1))
            await says(followers=many)
            await says(tip)
            assert (await refused(plugin.look_up(tip, 0, 5))).kind == "retry_later"
            await asyncio.sleep(2)
            await says(tip)
            assert await plugin.look_up(tip, 0, 5) is not None
            await says(tip)
            await node.metadata.claim_partition(
                PartitionClaim(
                    tip, Mode.DELEGATED, 4, Incarnation(7, uuid(77), 1), 1, epochs((0, 0), (4, 8))
                )
            )
            assert (await refused(plugin.look_up(tip, 0, 5))).kind == "retry_later"

    run_virtually(main)
