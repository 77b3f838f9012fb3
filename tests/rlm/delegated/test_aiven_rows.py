"""Segments that the broker copied by Aiven's plug-in, while its metadata went to the node: all that
the node reads of them, and their deletion.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Refused
from kafka_formats.log_names import segment_file_name
from rlm.data_plane.read_request import Isolation, RecordFormat, RecordsRequest
from rlm.fetch.follower_start import FollowerFetchQuery, FollowerPlan
from rlm.fetch.timestamp_search import TimestampSearch
from rlm.format.manifest import IndexType
from rlm.format.object_keys import segment_keys
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from sim.tier import plugin_bodies
from tests.rlm.aiven_writer import KEY_ID, KEYS, AivenWriter, custom_metadata
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, client_of, of_disk, refused
from tests.rlm.delegated.test_copies import (
    DELETING,
    FINISHED,
    LEADER_EPOCHS,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog
from tests.rlm.one_node import PREFIX, Node, new_world
from tests.rlm.virtual_time import run_virtually

WRITERS = {
    "plain": AivenWriter(300),
    "compressed": AivenWriter(300, compressed=True),
    "encrypted": AivenWriter(300, encrypted=True),
    "both": AivenWriter(300, compressed=True, encrypted=True),
}
KEY_FILES = {"main": {KEY_ID: KEYS / "private.pem"}}


@asynccontextmanager
async def with_aiven(tmp_path: Path, orders: KafkaLog) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A node with the private key, beside a broker that tiers through other managers."""
    world = new_world(tmp_path, (orders.log_dir,))
    world.aiven_keys = KEY_FILES
    async with world.boot(broker=broker_of(orders), topics=NO_TOPICS, data_plane=True) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            await plugin.announce(orders.partition)
            await asyncio.sleep(1)
            yield node, plugin
        await node.remote_log.close()


def indexes_of(orders: KafkaLog, row: RemoteLogSegmentMetadata) -> dict[IndexType, bytes]:
    def read(offset: int, suffix: str) -> bytes:
        return (orders.directory / segment_file_name(offset, suffix)).read_bytes()

    return {
        IndexType.OFFSET: read(row.start_offset, ".index"),
        IndexType.TIMESTAMP: read(row.start_offset, ".timeindex"),
        IndexType.PRODUCER_SNAPSHOT: read(row.end_offset + 1, ".snapshot"),
        IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    }


async def copied(
    node: Node,
    plugin: PluginClient,
    orders: KafkaLog,
    writer: AivenWriter,
    custom: bytes | None = None,
) -> list[RemoteLogSegmentMetadata]:
    """Both sealed segments, copied by Aiven's plug-in and recorded by its broker."""
    rows = [of_disk(orders, number, base, base + 9) for number, base in ((1, 0), (2, 10))]
    for row in rows:
        await plugin.add(row)
        objects = writer.objects(row, orders.log_bytes(row.start_offset), indexes_of(orders, row))
        stem = segment_keys(PREFIX, row.segment_id, row.start_offset).stem
        for suffix, data in objects.items():
            await node.store.put(stem + suffix, data, crc32c=crc32c(data))
        await plugin.update(row, FINISHED, custom)
    return rows


@pytest.mark.parametrize("name", WRITERS)
def test_the_broker_is_given_bytes_and_indexes(tmp_path: Path, orders: KafkaLog, name: str) -> None:
    async def main() -> None:
        async with with_aiven(tmp_path, orders) as (node, plugin):
            row, _ = await copied(node, plugin, orders, WRITERS[name])
            log, indexes = orders.log_bytes(0), indexes_of(orders, row)
            found = await plugin.look_up(orders.partition, 0, 5)
            assert found is not None
            assert await plugin.fetch(found, 0, len(log)) == log
            for start, end in ((0, 1), (17, 350), (299, 301), (len(log) - 1, len(log)), (9, 9)):
                assert await plugin.fetch(row, start, end) == log[start:end]
            assert await plugin.index(row, OFFSET_INDEX) == indexes[IndexType.OFFSET]
            assert await plugin.index(row, TIME_INDEX) == indexes[IndexType.TIMESTAMP]
            snapshot = indexes[IndexType.PRODUCER_SNAPSHOT]
            assert await plugin.index(row, PRODUCER_SNAPSHOT) == snapshot
            assert await plugin.index(row, LEADER_EPOCHS) == indexes[IndexType.LEADER_EPOCH]
            told = await refused(plugin.index(row, TRANSACTION_INDEX))
            assert (told.kind, told.reason) == ("not_found", "NO_SUCH_INDEX")

    run_virtually(main)


@pytest.mark.parametrize("name", ["plain", "both"])
def test_records_are_read_across_segments_and_found_by_time(
    tmp_path: Path, orders: KafkaLog, name: str
) -> None:
    async def main() -> None:
        async with with_aiven(tmp_path, orders) as (node, plugin):
            await copied(node, plugin, orders, WRITERS[name])
            reads, tip = node.parts.reads, orders.partition
            for isolation in Isolation:
                request = RecordsRequest(3, 10**6, isolation, RecordFormat.JSON_LINES)
                data = b"".join([piece async for piece in reads.records(tip, request)])
                lines = [json.loads(line) for line in data.splitlines()]
                assert [(line["offset"], line["value"]) for line in lines] == [
                    (offset, f"v{offset}") for offset in range(3, 20)
                ]
            search = TimestampSearch(reads, tip, lambda: asyncio.sleep(0), 10**6)
            found = await search.first_at_or_after(TIMESTAMP_MS + 14)
            assert found is not None
            assert found.offset == 14

    run_virtually(main)


def test_a_follower_is_built_from_them(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with with_aiven(tmp_path, orders) as (node, plugin):
            await copied(node, plugin, orders, WRITERS["both"])
            asked = FollowerFetchQuery(orders.partition, 0, 0, 20)
            answer = await node.parts.answers.follower_fetch(asked)
            assert (answer.plan, answer.fetch_offset) == (FollowerPlan.BUILD_FROM_TIER, 20)

    run_virtually(main)


def test_the_deletion_of_a_partition_leaves_nothing_of_them(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with with_aiven(tmp_path, orders) as (node, plugin):
            await copied(node, plugin, orders, WRITERS["compressed"])
            for state in PartitionDeleteState:
                if state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                    await asyncio.sleep(200)
                step = RemotePartitionDeleteMetadata(orders.partition, 1, 5, state)
                await plugin.call("delete-partition", plugin_bodies.delete_partition(step))
            await node.assert_quiesced()
            assert not [key for key in await node.keys() if "orders" in key]

    run_virtually(main)


def test_deletion_takes_all_three_objects(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with with_aiven(tmp_path, orders) as (node, plugin):
            row, kept = await copied(node, plugin, orders, WRITERS["both"])
            gone = set(segment_keys(PREFIX, row.segment_id, 0).all())
            before = await node.keys()
            assert gone < before
            await plugin.update(row, DELETING)
            await plugin.delete(row)
            assert await node.keys() == before - gone
            await asyncio.sleep(200)
            await node.assert_quiesced()
            assert await plugin.fetch(kept, 0, 5) == orders.log_bytes(10)[:5]

    run_virtually(main)


def test_its_custom_metadata_is_understood_and_no_other(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with with_aiven(tmp_path, orders) as (node, plugin):
            fields = custom_metadata(size=60, prefix=PREFIX)
            row, _ = await copied(node, plugin, orders, WRITERS["compressed"], fields)
            assert await plugin.fetch(row, 0, 9) == orders.log_bytes(0)[:9]
            at_hand = node.metadata.find_segment(row.segment_id.id)
            assert at_hand is not None
            assert at_hand.state is SegmentState.COPY_SEGMENT_FINISHED
            for custom, words in (
                (b"\x05another's", "neither Strandline nor Aiven's"),
                (custom_metadata(prefix="elsewhere/"), "'elsewhere/'"),
                (custom_metadata(key="a/0/b"), "'a/0/b'"),
            ):
                with pytest.raises(Refused, match=words):
                    node.parts.reads.tiered(replace(at_hand, custom_metadata=custom))

    run_virtually(main)
