"""The phases of the move from Kafka's own metadata topic, as a broker's plug-in meets them: its
history was imported, and its RemoteStorageManager is another one than ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.copier import Copier
from rlm.data_plane.copy_job import CopyJob, CopyResult
from rlm.delegated.foreign_objects import is_the_brokers
from rlm.leadership.unseen_disk import EpochAt
from rlm.migration.import_plan import plan_import
from rlm.migration.kafka_cache import KafkaCache
from rlmm.migration_phase import MigrationPhase
from rlmm.records.control_records import MigrationPhaseChange, ShadowWritten
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import (
    PluginClient,
    client_of,
    files_of,
    of_disk,
    refused,
    segment,
)
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.migration.kafka_history import without
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

COPYING, COPIED, DELETING, DELETED = SegmentState
NONE, KAFKA, SWITCHING, QUORUM, DONE, BACK = MigrationPhase
FOREIGN = b"\xff\xfefrom another one"


async def phase(node: Node, *phases: MigrationPhase) -> None:
    for each in phases:
        before = node.metadata.migration()
        change = MigrationPhaseChange(each, before.since, "kafka-1", "ann", "the move")
        await node.metadata.record_move(change)


def of_topic(tip: TopicIdPartition, number: int, start: int, end: int) -> RemoteLogSegmentMetadata:
    return without(segment(tip, number, start, end))


async def imported(node: Node, tip: TopicIdPartition, cache: KafkaCache) -> None:
    since = node.metadata.migration().since
    for record in plan_import(tip, cache, since=since, recorded=0):
        await node.metadata.record_move(record)


def states(node: Node, tip: TopicIdPartition) -> dict[Uuid, SegmentState]:
    rows = node.metadata.list_remote_log_segments(tip)
    return {row.segment_id.id: row.state for row in rows}


def history(tip: TopicIdPartition) -> KafkaCache:
    """Retention took what was below 10: the broker's log starts there."""
    cache = KafkaCache()
    for number, start, end, state in (
        (1, 10, 13, COPIED), (2, 14, 19, COPIED), (3, 20, 24, COPYING),
    ):  # fmt: skip
        row = of_topic(tip, number, start, end)
        cache.add(row)
        if state is COPIED:
            cache.update(RemoteLogSegmentMetadataUpdate(row.segment_id, 1, 5, FOREIGN, COPIED))
    return cache


@asynccontextmanager
async def moving(tmp_path: Path, orders: KafkaLog) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A node at feature level 2, in phase KAFKA, whose broker announced the partition."""
    world = new_world(tmp_path, (orders.log_dir,))
    broker = broker_of(orders)
    broker.tiered_start = EpochAt(0, 10)
    async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True) as node:
        await node.metadata.finalise_feature_level(2)
        await phase(node, KAFKA)
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            await plugin.announce(orders.partition)
            await asyncio.sleep(1)
            yield node, plugin
        await node.remote_log.close()


def test_while_kafkas_topic_has_the_truth_nothing_is_claimed_or_answered(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with moving(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            for each in (KAFKA, SWITCHING):
                if each is SWITCHING:
                    await phase(node, SWITCHING)
                await asyncio.sleep(30)
                ready, why = await plugin.ready(tip)
                assert (ready, each.name in why) == (False, True)
                for question in (
                    plugin.look_up(tip, 0, 12), plugin.highest(tip, 0), plugin.page(tip),
                    plugin.add(segment(tip, 9, 20, 24)),
                    plugin.update(segment(tip, 1, 10, 13), DELETING),
                    plugin.delete(segment(tip, 1, 10, 13)),
                ):  # fmt: skip
                    told = await refused(question)
                    assert told.kind == "retry_later"
                assert node.metadata.partition_state(tip) is None, "not even a claim"
            (problem,) = [each for each in node.parts.held_back.problems() if each.name == "move"]
            assert "SWITCHING" in problem.text

    run_virtually(main)


def test_an_imported_partition_goes_on_and_its_objects_are_its_brokers_to_delete(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with moving(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            orders.delete_segment(0)  # local retention: the log begins above the tier
            await phase(node, SWITCHING)
            await imported(node, tip, history(tip))
            await phase(node, QUORUM)
            await asyncio.sleep(60)
            assert await plugin.ready(tip) == (True, ""), "not taken for older history"
            assert await plugin.highest(tip, 0) == 19
            found = await plugin.look_up(tip, 0, 12)
            assert found is not None
            assert found.custom_metadata == FOREIGN
            assert set(states(node, tip).values()) == {COPIED, COPYING}, "none is cleaned up"
            first = segment(tip, 1, 10, 13)
            await plugin.update(first, DELETING, FOREIGN)
            await asyncio.sleep(3_600)
            assert states(node, tip)[first.segment_id.id] is DELETING, "its objects may be there"
            await plugin.update(first, DELETED, FOREIGN)
            assert first.segment_id.id not in states(node, tip)
            row = segment(tip, 5, 20, 24)
            await plugin.add(row)
            await plugin.update(row, COPIED, FOREIGN)
            assert await plugin.highest(tip, 0) == 24
            left_over = segment(tip, 3, 20, 24)
            await plugin.update(left_over, DELETING)
            await plugin.update(left_over, DELETED)
            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.lineage == (EpochEntry(0, 10),)
            await phase(node, BACK)
            await asyncio.sleep(30)
            assert (await plugin.ready(tip))[0] is False
            assert await plugin.look_up(tip, 0, 15) is not None, "reads go on"
            told = await refused(plugin.update(segment(tip, 2, 14, 19), DELETING, FOREIGN))
            assert told.kind == "retry_later"
            await phase(node, QUORUM)
            await asyncio.sleep(60)
            assert await plugin.ready(tip) == (True, "")

    run_virtually(main)


def test_who_deletes_a_segments_objects(orders: KafkaLog) -> None:
    row = replace(of_topic(orders.partition, 1, 0, 9), custom_metadata=FOREIGN)
    ours = replace(row, custom_metadata=b"SL\x01")
    aivens = replace(row, custom_metadata=None)
    assert not is_the_brokers(row, moved=False, serves_storage=False)
    assert is_the_brokers(row, moved=True, serves_storage=False)
    assert is_the_brokers(row, moved=True, serves_storage=True)
    assert not is_the_brokers(ours, moved=True, serves_storage=False)
    assert is_the_brokers(aivens, moved=True, serves_storage=False)
    assert not is_the_brokers(aivens, moved=True, serves_storage=True)


def test_after_a_way_back_an_empty_answer_about_a_delegated_partition_proves_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """What the brokers copied since is in Kafka's topic alone."""

    async def main() -> None:
        async with moving(tmp_path, orders) as (node, _):
            tip, other = orders.partition, replace(orders.partition, partition=7)
            await phase(node, SWITCHING)
            await imported(node, tip, history(tip))
            await phase(node, QUORUM)
            await asyncio.sleep(30)
            assert node.metadata.is_ready(tip)
            await phase(node, BACK)
            assert node.metadata.is_ready(tip)
            shadow = node.metadata.shadow()
            assert shadow is not None
            if shadow.rows:
                offset = node.metadata.applied_offset
                report = ShadowWritten(shadow.begun, Uuid(b"metadata-topic-1"), 3, offset)
                await node.metadata.record_move(report)
            await phase(node, KAFKA)
            assert not node.metadata.is_ready(tip)
            assert node.metadata.is_ready(other), "nothing is said of what is not delegated"

    run_virtually(main)


async def gone_back(node: Node) -> None:
    """From QUORUM to KAFKA, with all that waits for the topic written."""
    await phase(node, BACK)
    shadow = node.metadata.shadow()
    assert shadow is not None
    if shadow.rows:
        offset = node.metadata.applied_offset
        report = ShadowWritten(shadow.begun, Uuid(b"metadata-topic-1"), 3, offset)
        await node.metadata.record_move(report)
    await phase(node, KAFKA)


@pytest.mark.parametrize("amid", [False, True])
def test_a_copy_that_began_before_a_way_back_ends_in_no_segment_of_ours(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch, amid: bool
) -> None:
    """Its broker would finish it in Kafka's topic, and nobody could read or delete it."""
    upload = Copier.upload

    async def main() -> None:
        async with moving(tmp_path, orders) as (node, plugin):
            await phase(node, SWITCHING, QUORUM)
            await asyncio.sleep(60)
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            uploaded = []

            async def meanwhile(self: Copier, job: CopyJob) -> CopyResult:
                uploaded.append(job)
                result = await upload(self, job)
                await gone_back(node)
                return result

            monkeypatch.setattr(Copier, "upload", meanwhile)
            if not amid:
                await gone_back(node)
            told = await refused(plugin.copy(files_of(orders, row)))
            assert (told.kind, "phase KAFKA" in told.detail) == ("retry_later", True)
            assert bool(uploaded) is amid

    run_virtually(main)
