"""Partitions that the broker tiers itself: claimed for it, and never copied or expired by us."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import Leads, NotLeading, TopicConfig
from rlm.leadership.unseen_disk import EpochAt
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionModeChange
from rlmm.segment import RemoteLogSegmentMetadataUpdate, SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, TIERED, announcement, broker_of
from tests.rlm.delegated.plugin_client import client_of, refused
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.planner_facts import segment_row
from tests.rlm.virtual_time import run_virtually


def why(node: Node, orders: KafkaLog) -> WhyNot | None:
    return node.remote_log.status(orders.partition).why_not_copying


def test_an_announced_leader_is_claimed_at_once_for_the_broker_and_nothing_is_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker_of(orders), topics=NO_TOPICS) as node:
            await node.remote_log.start()
            await asyncio.sleep(20)
            assert why(node, orders) is WhyNot.NOT_INCLUDED
            said = announcement(orders.partition)
            node.parts.plugin.announce(said)
            assert world.addresses == [said.bootstrap]
            await asyncio.sleep(1)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.mode, state.claim is not None) == (Mode.DELEGATED, True)
            await asyncio.sleep(300)
            assert why(node, orders) is WhyNot.DELEGATED
            assert node.rows(orders.partition) == []
            assert [each.name for each in node.remote_log.node_problems()] == ["silent"]
            await node.remote_log.close()

    run_virtually(main)


def test_what_the_broker_tiers_is_left_out_until_its_plugin_says_so(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker_of(orders)) as node:
            await node.remote_log.run_once()
            assert why(node, orders) is WhyNot.MODE
            assert node.metadata.partition_state(orders.partition) is None

    run_virtually(main)


def test_plugin_and_configs_that_contradict_each_other_leave_the_partition_alone(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        broker.config = TopicConfig("delete", -1, -1, False)
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            node.parts.plugin.announce(announcement(orders.partition))
            await node.remote_log.run_once()
            assert why(node, orders) is WhyNot.MODE
            assert node.metadata.partition_state(orders.partition) is None
            broker.config = TIERED
            await node.remote_log.run_once()
            assert why(node, orders) is WhyNot.DELEGATED

    run_virtually(main)


def test_a_partition_moves_between_the_modes_by_an_admins_word_alone(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        broker.config = TopicConfig("delete", -1, -1, False)
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            assert len(node.finished(orders.partition)) == 2
            broker.config = TIERED
            node.parts.plugin.announce(announcement(orders.partition))
            await node.remote_log.run_once()
            assert why(node, orders) is WhyNot.MODE
            before = node.metadata.partition_state(orders.partition)
            assert before is not None
            change = PartitionModeChange(orders.partition, Mode.DELEGATED, before.mode_offset)
            await node.metadata.set_partition_mode(change)
            await node.remote_log.run_once()
            assert why(node, orders) is WhyNot.DELEGATED

    run_virtually(main)


def test_a_broker_whose_log_begins_above_the_tier_never_gets_it(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """[LOSS-8] It would delete the tier's older part as lying below its log start."""

    async def main() -> None:
        broker = broker_of(orders)
        broker.config = TopicConfig("delete", -1, -1, False)
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            orders.delete_segment(0)
            orders.set_epochs((0, 10))
            broker.config, broker.tiered_start = TIERED, EpochAt(0, 10)
            node.parts.plugin.announce(announcement(orders.partition))
            before = node.metadata.partition_state(orders.partition)
            assert before is not None
            change = PartitionModeChange(orders.partition, Mode.DELEGATED, before.mode_offset)
            await node.metadata.set_partition_mode(change)
            await node.remote_log.run_once()
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.MODE
            assert "read replica" in page.why_not_text
            assert len(node.finished(orders.partition)) == 2

    run_virtually(main)


def test_what_nodes_copied_counts_for_no_follower_before_a_leader_was_claimed_for_its_broker(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """[LOSS-8] It deletes that from its disk. A broker that starts follows for a moment, and then
    it may be one that never gets the partition: its consumers would have it nowhere.
    """

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        broker.config = TopicConfig("delete", -1, -1, False)
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            before = node.metadata.partition_state(tip)
            assert before is not None
            change = PartitionModeChange(tip, Mode.DELEGATED, before.mode_offset)
            await node.metadata.set_partition_mode(change)
            broker.config = TIERED
            follows = replace(announcement(), followers=(tip,))
            node.parts.plugin.announce(follows)
            broker.words[tip.topic, tip.partition] = NotLeading()
            await node.remote_log.run_once()
            plugin = client_of(node)
            async with plugin.http:
                told = await refused(plugin.highest(tip, 0))
                assert (told.kind, told.reason) == ("retry_later", "")
                assert "no leader was claimed" in told.detail
                broker.words[tip.topic, tip.partition] = Leads(0, 25)
                node.parts.plugin.announce(announcement(tip, seq=2))
                await node.remote_log.run_once()
                node.parts.plugin.announce(replace(follows, seq=3))
                plugin.seq = 3
                broker.words[tip.topic, tip.partition] = NotLeading()
                await node.remote_log.run_once()
                assert await plugin.highest(tip, 0) == 19

    run_virtually(main)


def test_an_unfinished_copy_of_the_broker_is_cleaned_up_once_its_session_is_gone(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        limits = replace(LIMITS, upload_deadline_s=1e6)
        async with world.boot(broker=broker_of(orders), limits=limits) as node:
            plugin = node.parts.plugin
            plugin.announce(announcement(orders.partition))
            await node.remote_log.start()
            await asyncio.sleep(1)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.claim is not None
            row = segment_row(1, 0, 9, segment_state=SegmentState.COPY_SEGMENT_STARTED)
            row = replace(
                row,
                segment_id=replace(row.segment_id, partition=orders.partition),
                token=state.claim.token,
                writer=state.claim.incarnation,
                upload_deadline_ms=10**15,
            )
            await node.metadata.add_remote_log_segment_metadata(row)
            plugin.added(row.segment_id.id)
            await asyncio.sleep(300)
            assert [each[2] for each in node.rows(orders.partition)] == ["COPY_SEGMENT_STARTED"]
            plugin.announce(announcement(orders.partition, session=2))
            await asyncio.sleep(30)
            assert [each[2] for each in node.rows(orders.partition)] == ["DELETE_SEGMENT_STARTED"]
            await node.remote_log.close()

    run_virtually(main)


def test_a_sign_of_life_is_no_news(tmp_path: Path, orders: KafkaLog) -> None:
    """It comes each five seconds: neither a look at the disks nor a barrier for it."""

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker_of(orders)) as node:
            plugin = node.parts.plugin
            changed: list[Iterable[TopicIdPartition]] = []
            plugin.on_changed = changed.append
            plugin.announce(announcement(orders.partition))
            alive = replace(announcement(), base_seq=1)
            for _ in range(3):
                plugin.announce(alive)
            assert changed == [{orders.partition}]
            assert plugin.has(orders.partition)

    run_virtually(main)


def test_a_replica_that_moved_away_leaves_the_tier_as_it_is(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """[LOSS-1] The broker says so in the same way as of a deleted topic."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker_of(orders), topics=NO_TOPICS) as node:
            plugin, tip = node.parts.plugin, orders.partition
            plugin.announce(announcement(tip))
            await node.remote_log.start()
            await asyncio.sleep(1)
            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.claim is not None
            row = segment_row(1, 0, 9, segment_state=SegmentState.COPY_SEGMENT_STARTED)
            row = replace(
                row,
                segment_id=replace(row.segment_id, partition=tip),
                token=state.claim.token,
                writer=state.claim.incarnation,
            )
            await node.metadata.add_remote_log_segment_metadata(row)
            await node.metadata.update_remote_log_segment_metadata(
                RemoteLogSegmentMetadataUpdate(
                    row.segment_id, 1, 5, b"", SegmentState.COPY_SEGMENT_FINISHED,
                    token=state.claim.token, writer=state.claim.incarnation,
                )
            )  # fmt: skip
            plugin.announce(replace(announcement(seq=2), base_seq=1, stopped=(tip,)))
            await asyncio.sleep(4_000)
            assert node.finished(tip) == [(0, 9)]
            assert not plugin.has(tip)
            await node.remote_log.close()

    run_virtually(main)
