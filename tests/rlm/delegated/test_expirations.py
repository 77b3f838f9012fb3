"""A broker's expiration moves its log start first, then deletes. Behind a deletion that fails, what
it did not come to lies below its log start, goes unasked at the next run, and is counted as kept by
`retention.bytes`: so as much again expires, at each run, until nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import deletions
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.deletions import BrokerDeletions
from rlm.delegated.expirations import CONFIRMED_FOR_S
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.leadership.leadership import NoAnswer, NotLeading, TopicConfig
from rlm.leadership.unseen_disk import EpochAt
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import PartitionModeChange, TopicPolicyChange
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import (
    COUNTED,
    NO_TOPICS,
    TIERED,
    broker_of,
)
from tests.rlm.delegated.plugin_client import PluginClient, client_of, refused, segment
from tests.rlm.delegated.test_calls import CUSTOM, beside
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED


def test_no_expiration_begins_while_deleting_is_paused(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            paused = TopicPolicy(delete_paused=True)
            at = await node.metadata.set_topic_policy(TopicPolicyChange(tip.topic, paused, -1))
            told = await refused(plugin.page(tip))
            assert told.kind == "retry_later"
            assert "deleting of orders is paused" in told.detail
            # Copies and look-ups go on, and what a new leader asks for.
            assert await plugin.ready(tip) == (True, "")
            assert (await plugin.page(tip, 0))[1] is not None
            assert await plugin.look_up(tip, 0, 5) is not None
            await plugin.add(segment(tip, 2, 10, 19))
            change = TopicPolicyChange(tip.topic, TopicPolicy(), at)
            await node.metadata.set_topic_policy(change)
            assert (await plugin.page(tip))[1] is not None

    run_virtually(main)


def test_no_expiration_begins_while_the_quorum_has_no_majority(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up = RemoteLogMetadataManager.catch_up
    has_majority, asked = True, 0

    async def confirm(self: RemoteLogMetadataManager, *, deadline_s: float) -> None:
        nonlocal asked
        asked += 1
        if not has_majority:
            await asyncio.sleep(deadline_s)
            raise RetryLater("no majority")
        await catch_up(self, deadline_s=deadline_s)

    async def main() -> None:
        nonlocal has_majority
        async with beside(tmp_path, orders) as (_, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            monkeypatch.setattr(RemoteLogMetadataManager, "catch_up", confirm)
            for _ in range(3):
                await plugin.page(tip)
            assert asked == 1, "partitions that are listed one after the other share a barrier"
            has_majority = False
            await asyncio.sleep(2 * CONFIRMED_FOR_S)
            for _ in range(2):
                told = await refused(plugin.page(tip))
                assert (told.kind, told.detail) == ("retry_later", "no majority")
            assert await plugin.ready(tip) == (True, "")
            await plugin.page(tip, 0)
            has_majority = True
            await plugin.page(tip)

    run_virtually(main)


def test_a_store_that_is_away_stops_no_expiration_half_way(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        away = False

        async def hook(step: str) -> None:
            if away and "delete" in step:
                raise RetryLater("the store is away")

        world = new_world(tmp_path, (orders.log_dir,))
        broker = broker_of(orders)
        async with world.boot(broker=broker, topics=NO_TOPICS, hook=hook) as node:
            await node.remote_log.start()
            plugin, tip = client_of(node), orders.partition
            async with plugin.http:
                await plugin.announce(tip)
                await asyncio.sleep(1)
                row = segment(tip, 1, 0, 9)
                await plugin.add(row)
                await plugin.update(row, FINISHED, CUSTOM)
                away = True
                await plugin.update(row, DELETING)
                await plugin.delete(row)
                await plugin.update(row, DELETED)
                assert [state for _, _, state in node.rows(tip)] == [DELETING.name], "not gone yet"
                away = False
                await asyncio.sleep(300)
                assert node.rows(tip) == []
            await node.remote_log.close()

    run_virtually(main)


def states(node: Node, tip: TopicIdPartition) -> list[tuple[int, str]]:
    return [(start, state) for start, _, state in node.rows(tip)]


def test_a_run_that_broke_off_is_not_counted_again(tmp_path: Path, orders: KafkaLog) -> None:
    """The broker's log start passed two segments, of which it did not come to the second."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            rows = [segment(tip, 1 + at, 5 * at, 5 * at + 4) for at in range(4)]
            for row in rows:
                await plugin.add(row)
                await plugin.update(row, FINISHED, CUSTOM)
            broker.config, broker.tiered_start = COUNTED, EpochAt(0, 12)
            assert len((await plugin.page(tip, 0))[1] or ()) == 4, "a new leader's list as it was"
            assert states(node, tip) == [(at, FINISHED.name) for at in (0, 5, 10, 15)]
            told = (await plugin.page(tip))[1] or ()
            assert [row.state for row in told] == [DELETING, DELETING, FINISHED, FINISHED]
            # Its run goes on as with any deletion that broke off.
            await plugin.update(rows[0], DELETING)
            await plugin.delete(rows[0])
            await plugin.update(rows[0], DELETED)
            await asyncio.sleep(300)
            assert states(node, tip) == [(10, FINISHED.name), (15, FINISHED.name)]

    run_virtually(main)


def test_what_is_of_epochs_before_the_logs_first_is_not_counted_again(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Brokers from 4.3 on count the list of all epochs, once all of it counted."""

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with beside(tmp_path, orders, broker) as (_, plugin):
            await plugin.announce(tip)
            await asyncio.sleep(1)
            spans = [(0, 4, ((0, 0),)), (0, 6, ((0, 0), (1, 5))), (3, 4, ((0, 3),))]
            spans += [(7, 20, ((1, 7),)), (1, 30, ((0, 1),))]
            for number, (start, end, epochs) in enumerate(spans, 1):
                row = replace(segment(tip, number, start, end), leader_epochs=epochs)
                await plugin.add(row)
                await plugin.update(row, FINISHED, CUSTOM)
            broker.config, broker.tiered_start = COUNTED, EpochAt(1, 10)
            told = {row.segment_id.id: row.state for row in (await plugin.page(tip))[1] or ()}
            expected = [DELETING, DELETING, DELETING, FINISHED, FINISHED]
            assert [told[uuid(number)] for number in range(1, 6)] == expected

    run_virtually(main)


def test_what_holds_a_later_epoch_than_the_log_starts_is_the_brokers_to_judge(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """It is of another history than the broker's, and not counted: its expiration leaves it."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = replace(segment(tip, 1, 0, 9), leader_epochs=((0, 0), (1, 8)))
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            broker.config, broker.tiered_start = COUNTED, EpochAt(0, 12)
            await plugin.page(tip)
            assert states(node, tip) == [(0, FINISHED.name)]

    run_virtually(main)


def test_what_the_log_start_passed_waits_for_the_brokers_word(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            broker.tiered_start = NoAnswer("it hangs")
            assert (await plugin.page(tip))[1] == (), "nothing can have been passed"
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            told = await refused(plugin.page(tip))
            assert (told.kind, "log start" in told.detail) == ("retry_later", True), told.detail
            assert "it hangs" in told.detail
            broker.tiered_start = NotLeading()
            assert "does not lead" in (await refused(plugin.page(tip))).detail
            broker.config, broker.tiered_start = COUNTED, EpochAt(1, 12)
            await plugin.page(tip)
            assert states(node, tip) == [(0, DELETING.name)]

    run_virtually(main)


@pytest.mark.parametrize("said", [NotLeading(), NoAnswer("UNKNOWN_TOPIC_OR_PARTITION")])
def test_a_deleted_topic_is_listed_by_a_broker_that_tells_no_log_start_any_more(
    tmp_path: Path, orders: KafkaLog, said: NotLeading | NoAnswer
) -> None:
    """It lists once, right behind the renaming of the directory, which no look has seen yet."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (_, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            broker.tiered_start = said
            assert "log start" in (await refused(plugin.page(tip))).detail, "it may only be away"
            directory = orders.log_dir / f"{tip.topic}-{tip.partition}"
            directory.rename(directory.with_name(f"{directory.name}.{'1' * 32}-delete"))
            assert "was removed" in (await refused(plugin.page(tip))).detail, (
                "its replica moved away"
            )
            broker.unknown_topics = True
            assert len((await plugin.page(tip))[1] or ()) == 1
            await plugin.update(row, DELETING)

    run_virtually(main)


def test_a_node_without_a_broker_lists(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(topics=NO_TOPICS) as node:
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                tip = orders.partition
                await plugin.announce(tip)
                await asyncio.sleep(10)
                await plugin.add(segment(tip, 1, 0, 9))
                await plugin.update(segment(tip, 1, 0, 9), FINISHED, CUSTOM)
                assert len((await plugin.page(tip))[1] or ()) == 1
            await node.remote_log.close()

    run_virtually(main)


@pytest.fixture
def slow_updates(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on they take 0.3 s each, 5 at once."""
    update = RemoteLogMetadataManager.update_remote_log_segment_metadata

    async def slow(self: RemoteLogMetadataManager, *args: Any, **named: Any) -> None:
        await asyncio.sleep(0.3)
        await update(self, *args, **named)

    def begin() -> None:
        monkeypatch.setattr(RemoteLogMetadataManager, "update_remote_log_segment_metadata", slow)
        monkeypatch.setattr(deletions, "MARKED_AT_ONCE", 5)

    return begin


async def twenty_of_which_18_are_passed(
    broker: FakeBroker, plugin: PluginClient, tip: TopicIdPartition
) -> None:
    await plugin.announce(tip)
    await asyncio.sleep(1)
    for at in range(20):
        await plugin.add(segment(tip, 1 + at, at, at))
        await plugin.update(segment(tip, 1 + at, at, at), FINISHED, CUSTOM)
    broker.config, broker.tiered_start = COUNTED, EpochAt(0, 18)


def test_more_than_one_call_can_mark_is_marked_by_several(
    tmp_path: Path, orders: KafkaLog, slow_updates: Callable[[], None]
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await twenty_of_which_18_are_passed(broker, plugin, tip)
            slow_updates()
            told = await refused(plugin.page(tip))
            assert told.kind == "retry_later"
            await asyncio.sleep(1)
            listed = (await plugin.page(tip))[1] or ()
            assert [row.start_offset for row in listed if row.state is FINISHED] == [18, 19]
            assert len(node.finished(tip)) == 2

    run_virtually(main)


def test_no_call_reads_and_marks_more_than_it_has_time_for(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await twenty_of_which_18_are_passed(broker, plugin, tip)
            monkeypatch.setattr(deletions, "MARKED_BY_CALL", 8)
            for left in (12, 4):
                assert "the next list" in (await refused(plugin.page(tip))).detail
                assert len(node.finished(tip)) == left
            monkeypatch.setattr(CleanUpTasks, "is_full", True)
            assert "wait for their removal" in (await refused(plugin.page(tip))).detail
            assert len(node.finished(tip)) == 4
            monkeypatch.setattr(CleanUpTasks, "is_full", False)
            listed = (await plugin.page(tip))[1] or ()
            assert [row.start_offset for row in listed if row.state is FINISHED] == [18, 19]

    run_virtually(main)


@pytest.mark.parametrize("config", [TIERED, replace(COUNTED, remote_storage_enable=False)])
def test_where_nothing_is_counted_the_broker_deletes_what_its_log_start_passed(
    tmp_path: Path, orders: KafkaLog, slow_updates: Callable[[], None], config: TopicConfig
) -> None:
    """Behind remote.log.delete.on.disable it lists once, and its log start has passed all."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (_, plugin):
            tip = orders.partition
            await twenty_of_which_18_are_passed(broker, plugin, tip)
            slow_updates()
            broker.config = config
            listed = (await plugin.page(tip))[1] or ()
            assert [row.state for row in listed] == 20 * [FINISHED]

    run_virtually(main)


def test_a_disabled_tier_is_listed_also_once_the_node_has_seen_it_disabled(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A broker takes the partitions one after the other, each with all its segments. No expiration
    lists then, and no copy begins.
    """

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with beside(tmp_path, orders, broker) as (node, plugin):
            await twenty_of_which_18_are_passed(broker, plugin, tip)
            broker.config = replace(TIERED, remote_storage_enable=False)
            broker.tiered_start = EpochAt(0, 20)
            await asyncio.sleep(60)
            assert not (await plugin.ready(tip))[0]
            assert "agree" in (await refused(plugin.add(segment(tip, 99, 20, 24)))).detail
            rows = (await plugin.page(tip))[1] or ()
            assert [row.state for row in rows] == 20 * [FINISHED]
            for row in rows:
                await plugin.update(row, DELETING)
                await plugin.delete(row)
                await plugin.update(row, DELETED)
            await asyncio.sleep(300)
            assert states(node, tip) == []
            state = node.metadata.partition_state(tip)
            assert state is not None
            paused = PartitionModeChange(tip, Mode.PAUSED, state.mode_offset)
            await node.metadata.set_partition_mode(paused)
            assert "paused" in (await refused(plugin.page(tip))).detail

    run_virtually(main)


def test_a_list_waits_for_no_readiness_that_went_meanwhile(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker announces anew, without the partition, while its list waits for a row."""
    until_added = BrokerCalls._until_added

    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)

            async def meanwhile(self: BrokerCalls, of: TopicIdPartition) -> None:
                await until_added(self, of)
                plugin.seq += 1
                await plugin.announce()

            monkeypatch.setattr(BrokerCalls, "_until_added", meanwhile)
            told = await refused(plugin.page(tip, 0))
            assert "did not announce it" in told.detail

    run_virtually(main)


def test_a_list_that_began_before_the_node_was_ready_left_steps_out(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes ready while it sees if the topic is deleted."""
    why_not_writable = BrokerCalls.why_not_writable
    whys = ["its claim is not recorded yet"]

    def until_then(self: BrokerCalls, tip: TopicIdPartition) -> str | None:
        return whys[0] if whys else why_not_writable(self, tip)

    async def meanwhile(*_: object) -> bool:
        whys.clear()
        return False

    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            monkeypatch.setattr(BrokerCalls, "why_not_writable", until_then)
            monkeypatch.setattr(BrokerDeletions, "is_topic_deleted", meanwhile)
            assert "claim is not recorded" in (await refused(plugin.page(tip))).detail
            assert (await plugin.page(tip))[1] == ()

    run_virtually(main)
