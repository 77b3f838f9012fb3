"""Remembered states of partitions are those of the rows, after every record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.manager.manager import MetadataLimits
from rlmm.partition_state import Mode
from rlmm.records.control_records import LogStart, LostRange, NodeRegistration, PartitionModeChange
from rlmm.rows import queries
from rlmm.rows.keys import RowKind
from rlmm.rows.nodes import all_nodes
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata
from rlmm.view.partition_states import PartitionStates
from rlmm.view.view import View
from tests.rlmm.metadata_node import (
    NODE_ID,
    NOW_MS,
    PARTITION,
    Node,
    claim,
    deleted,
    finished,
    running_node,
    started,
)

OTHER = TopicIdPartition("payments", Uuid(b"topic-id-paymen."), 3)
AGAIN = replace(OTHER, topic_id=Uuid(b"payments-again.."))


def assert_true_to_the_rows(node: Node) -> None:
    for partition in (PARTITION, OTHER, AGAIN, replace(AGAIN, partition=9)):
        # Asked twice: what is remembered is as true as what was read.
        for _ in range(2):
            expected = queries.partition_state(node.view, partition)
            assert node.manager.partition_state(partition) == expected
            name = partition.topic, partition.partition
            expected_tip = queries.find_partition(node.view, *name)
            assert node.manager.find_partition(*name) == expected_tip


async def test_a_state_is_true_to_the_rows_after_every_record(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        manager = node.manager
        assert_true_to_the_rows(node)
        token = (await manager.claim_partition(claim())).token
        assert_true_to_the_rows(node)
        await manager.claim_partition(claim(partition=OTHER))
        assert_true_to_the_rows(node)
        await manager.record_log_start(LogStart(PARTITION, token, 1, 0))
        assert_true_to_the_rows(node)
        for number in range(3):
            segment = started(number, token)
            await manager.add_remote_log_segment_metadata(segment)
            assert_true_to_the_rows(node)
            if number < 2:
                await manager.update_remote_log_segment_metadata(finished(segment))
            else:
                await manager.update_remote_log_segment_metadata(deleted(segment, token=token))
            assert_true_to_the_rows(node)
        await manager.record_lost_range(LostRange(PARTITION, token, 200, 249, "gone"))
        assert_true_to_the_rows(node)
        state = manager.partition_state(OTHER)
        assert state is not None
        await manager.set_partition_mode(
            PartitionModeChange(OTHER, Mode.PAUSED, replaces_offset=state.mode_offset)
        )
        assert_true_to_the_rows(node)
        assert manager.partition_state(OTHER) != state
        for step in PartitionDeleteState:
            state = manager.partition_state(OTHER)
            assert state is not None
            await manager.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    OTHER, NODE_ID, NOW_MS, step, replaces_offset=state.delete_offset, grace_ms=0
                )
            )
            assert_true_to_the_rows(node)
        assert manager.partition_state(OTHER) is None


async def test_the_newest_topic_of_a_name_is_true_to_the_rows_after_every_record(
    tmp_path: Path,
) -> None:
    async with running_node(tmp_path) as node:
        for partition in (
            OTHER, replace(OTHER, partition=9), AGAIN, replace(OTHER, partition=1)
        ):  # fmt: skip
            await node.manager.claim_partition(claim(partition=partition))
            assert_true_to_the_rows(node)
        assert node.manager.find_partition("payments", 3) == AGAIN
        assert node.manager.find_partition("payments", 9) is None
        for step in PartitionDeleteState:
            state = node.manager.partition_state(AGAIN)
            assert state is not None
            await node.manager.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    AGAIN, NODE_ID, NOW_MS, step, replaces_offset=state.delete_offset, grace_ms=0
                )
            )
            assert_true_to_the_rows(node)
        assert node.manager.find_partition("payments", 9) == replace(OTHER, partition=9)


async def test_nodes_are_read_again_behind_a_record_about_one_alone(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        manager = node.manager
        assert manager.registered_nodes() == ()
        await manager.record_node(NodeRegistration(manager.incarnation))
        registered = manager.registered_nodes()
        assert registered == all_nodes(node.view)
        assert [each.node_id for each in registered] == [NODE_ID]
        await manager.claim_partition(claim())
        assert manager.registered_nodes() is registered
    async with running_node(tmp_path, boot=2) as node:
        before = node.manager.registered_nodes()
        assert before == registered
        await node.manager.record_node(NodeRegistration(node.manager.incarnation))
        assert node.manager.registered_nodes() == all_nodes(node.view) != before


async def test_a_restarted_node_remembers_nothing_wrong(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.manager.claim_partition(claim())
    async with running_node(tmp_path, boot=2, limits=MetadataLimits(states_kept_max=1)) as node:
        assert_true_to_the_rows(node)
        await node.manager.claim_partition(claim(partition=OTHER, boot=2))
        assert_true_to_the_rows(node)


async def test_no_more_states_are_remembered_than_allowed(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.manager.claim_partition(claim())
        await node.manager.claim_partition(claim(partition=OTHER))
        states = PartitionStates(node.view, kept_max=1)
        for partition in (PARTITION, OTHER, PARTITION):
            assert states.state(partition) == queries.partition_state(node.view, partition)
            assert len(states._states) == 1


async def test_an_installed_snapshot_leaves_nothing_remembered(tmp_path: Path) -> None:
    async with running_node(tmp_path / "ahead") as ahead:
        token = (await ahead.manager.claim_partition(claim())).token
        await ahead.manager.record_log_start(LogStart(PARTITION, token, 1, 0))
        rows = list(ahead.view.rows_in_key_order())
        offset = ahead.view.applied_offset
    view = View.open(tmp_path / "behind")
    try:
        claimed = [row for row in rows if row[0][:1] != bytes((RowKind.RECORD_TIME,))]
        view.commit(claimed, applied_offset=0, epoch=1)
        states = PartitionStates(view, kept_max=9)
        assert states.state(PARTITION) is not None
        view.install_from([], applied_offset=offset, epoch=1)
        assert states.state(PARTITION) is None
        view.install_from(rows, applied_offset=offset + 1, epoch=1)
        states.committed([], before=offset)
        assert states.state(PARTITION) == queries.partition_state(view, PARTITION)
    finally:
        view.close()


async def test_records_behind_an_installed_snapshot_forget_everything(tmp_path: Path) -> None:
    async with running_node(tmp_path / "ahead") as ahead:
        await ahead.manager.claim_partition(claim())
        rows = list(ahead.view.rows_in_key_order())
    view = View.open(tmp_path / "behind")
    try:
        view.commit(rows, applied_offset=0, epoch=1)
        states = PartitionStates(view, kept_max=9)
        assert states.state(PARTITION) is not None
        view.install_from([], applied_offset=7, epoch=1)
        view.commit((), applied_offset=8, epoch=1)
        states.committed([OTHER], before=7)
        assert states.state(PARTITION) is None
    finally:
        view.close()
