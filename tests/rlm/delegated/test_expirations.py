"""A broker's expiration moves its log start first, then deletes. Behind a deletion that fails, what
it did not come to lies below its log start, goes unasked at the next run, and is counted as kept by
`retention.bytes`: so as much again expires, at each run, until nothing is left.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.delegated.expirations import CONFIRMED_FOR_S
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import client_of, refused, segment
from tests.rlm.delegated.test_calls import CUSTOM, beside
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
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
