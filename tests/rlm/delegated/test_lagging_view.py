"""The view lags behind the metadata log, as after a restart: a row that it lacks is not taken for a
deleted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import OutcomeUnknown
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from sim.tier import plugin_bodies
from tests.rlm.delegated.plugin_client import PluginClient, ToldError, files_of, of_disk
from tests.rlm.delegated.test_copies import DELETING, FINISHED, beside
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node
from tests.rlm.virtual_time import run_virtually

DELETED = SegmentState.DELETE_SEGMENT_FINISHED


@asynccontextmanager
async def with_a_copy(
    tmp_path: Path, orders: KafkaLog
) -> AsyncIterator[tuple[Node, PluginClient, RemoteLogSegmentMetadata]]:
    async with beside(tmp_path, orders) as (node, plugin):
        row = of_disk(orders, 1, 0, 9)
        await plugin.add(row)
        await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
        yield node, plugin, row


@contextmanager
def lagging(node: Node) -> Iterator[None]:
    """The view has nothing before it caught up."""
    with pytest.MonkeyPatch.context() as patched:
        metadata = node.metadata
        found = {
            name: getattr(metadata, name) for name in ("find_segment", "segment", "partition_state")
        }
        catch_up, behind = metadata.catch_up, True

        async def catches_up(**given: Any) -> None:
            nonlocal behind
            await catch_up(**given)
            behind = False

        for name, read in found.items():
            patched.setattr(metadata, name, lambda *key, read=read: None if behind else read(*key))
        patched.setattr(metadata, "catch_up", catches_up)
        yield


def test_objects_are_not_said_to_be_gone(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with with_a_copy(tmp_path, orders) as (node, plugin, row):
            with lagging(node), pytest.raises(ToldError, match="conflict"):
                await plugin.delete(row)
            await plugin.update(row, DELETING)
            before = await node.keys()
            with lagging(node):
                await plugin.delete(row)
            assert len(await node.keys()) == len(before) - 3

    run_virtually(main)


def test_a_deletion_is_not_ended_before_its_time(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with with_a_copy(tmp_path, orders) as (node, plugin, row):
            await plugin.update(row, DELETING)
            with lagging(node):
                await plugin.update(row, DELETED)
            found = node.metadata.find_segment(row.segment_id.id)
            assert found is not None
            assert found.state is DELETING
            await asyncio.sleep(200)
            await node.assert_quiesced()

    run_virtually(main)


def test_an_end_that_overtakes_its_beginning_ends_nothing(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is recorded after the look at the row: else only the row would go."""

    async def main() -> None:
        async with with_a_copy(tmp_path, orders) as (node, plugin, row):
            write = node.metadata.update_remote_log_segment_metadata

            async def behind_the_mark(update: Any, **deadline: Any) -> Any:
                if update.state is DELETED:
                    await plugin.update(row, DELETING)
                return await write(update, **deadline)

            name = "update_remote_log_segment_metadata"
            with monkeypatch.context() as patched:
                patched.setattr(node.metadata, name, behind_the_mark)
                with pytest.raises(ToldError, match="conflict"):
                    await plugin.update(row, DELETED)
            await plugin.update(row, DELETING)
            await asyncio.sleep(200)
            await node.assert_quiesced()
            assert await node.keys() == await node.expected_keys()

    run_virtually(main)


def test_a_partition_is_not_said_to_be_deleted(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with with_a_copy(tmp_path, orders) as (node, plugin, row):
            tip = row.segment_id.partition
            put = RemotePartitionDeleteMetadata(
                tip, 1, 5, PartitionDeleteState.DELETE_PARTITION_FINISHED
            )
            with lagging(node), pytest.raises(ToldError, match="not marked as deleted"):
                await plugin.call("delete-partition", plugin_bodies.delete_partition(put))

    run_virtually(main)


def test_a_list_has_the_segment_that_was_being_added(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that deletes a topic gives its copies up, lists once, and never asks again."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            add = node.metadata.add_remote_log_segment_metadata

            async def slowly(*given: Any, **deadline: Any) -> Any:
                await asyncio.sleep(1)
                return await add(*given, **deadline)

            monkeypatch.setattr(node.metadata, "add_remote_log_segment_metadata", slowly)
            adding = asyncio.create_task(plugin.add(row))
            await asyncio.sleep(0.5)
            adding.cancel()
            listed = await plugin.list_changes(orders.partition, None)
            assert [each.segment_id for each in listed.rows] == [row.segment_id]
            adding = asyncio.create_task(plugin.add(of_disk(orders, 2, 10, 19)))
            await asyncio.sleep(0.1)
            with pytest.raises(ToldError, match="retry_later"):
                await plugin.list_changes(orders.partition, None)
            await adding

    run_virtually(main)


def test_a_list_has_the_segment_of_which_nobody_heard_if_it_was_added(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was accepted, and this node's view was further behind than an add may wait."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row, behind = of_disk(orders, 1, 0, 9), True
            add, catch_up = node.metadata.add_remote_log_segment_metadata, node.metadata.catch_up
            listed = node.metadata.list_remote_log_segments

            async def unheard_of(*given: Any, **deadline: Any) -> Any:
                await add(*given, **deadline)
                raise OutcomeUnknown("the record was sent, and nobody answered")

            async def catches_up(**given: Any) -> None:
                nonlocal behind
                await catch_up(**given)
                behind = False

            def of_the_view(*key: Any, **where: Any) -> Any:
                return iter(()) if behind else listed(*key, **where)

            monkeypatch.setattr(node.metadata, "add_remote_log_segment_metadata", unheard_of)
            monkeypatch.setattr(node.metadata, "catch_up", catches_up)
            monkeypatch.setattr(node.metadata, "list_remote_log_segments", of_the_view)
            with pytest.raises(ToldError, match="outcome"):
                await plugin.add(row)
            found = await plugin.list_changes(orders.partition, None)
            assert [each.segment_id for each in found.rows] == [row.segment_id]

    run_virtually(main)
