"""Holds of the trash are carried on beside the change of a policy that leaves retention alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.manager import trash_writes
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Expiry, TopicPolicy
from rlmm.records.control_records import ExpiryTakenBack, TopicPolicyChange
from rlmm.rows.expiry import find_expiry
from rlmm.rows.rows import RowReader
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata
from tests.rlmm.metadata_node import PARTITION, claim, running_node

TOPIC = PARTITION.topic
HELD = [replace(PARTITION, partition=number) for number in range(3)]


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[RemoteLogMetadataManager]:
    async with running_node(tmp_path) as node:
        for tip in HELD:
            await node.manager.claim_partition(claim(partition=tip))
            await node.manager.take_expiry_back(ExpiryTakenBack(tip, -1, True, "ann", "a mistake"))
        yield node.manager


def held(manager: RemoteLogMetadataManager) -> list[bool]:
    offset = manager.topic_policy(TOPIC).offset
    states = [manager.partition_state(tip) for tip in HELD]
    assert all(state is not None for state in states)
    return [state is not None and state.expiry.held_by(offset) is not None for state in states]


async def change(manager: RemoteLogMetadataManager, policy: TopicPolicy) -> int:
    replaces = manager.topic_policy(TOPIC).offset
    return await manager.set_topic_policy(TopicPolicyChange(TOPIC, policy, replaces))


@pytest.mark.parametrize("together", [trash_writes.TOGETHER_BYTES_MAX, 1])
async def test_every_hold_stands_on_under_the_new_policy(
    manager: RemoteLogMetadataManager, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(trash_writes, "TOGETHER_BYTES_MAX", together)
    before = manager.applied_offset
    assert await change(manager, TopicPolicy(copy_paused=True)) > before
    assert held(manager) == [True] * 3
    state = manager.partition_state(HELD[2])
    assert state is not None
    assert state.expiry.hold is not None
    assert (state.expiry.hold.who, state.expiry.hold.why) == ("ann", "a mistake")
    await change(manager, TopicPolicy(copy_paused=True, retention_bytes=5))
    assert held(manager) == [False] * 3


async def test_a_hold_that_is_set_while_the_policy_changes_is_carried_on(
    manager: RemoteLogMetadataManager,
) -> None:
    state = manager.partition_state(HELD[0])
    assert state is not None
    released = ExpiryTakenBack(HELD[0], state.expiry.offset, False, "ann", "right after all")
    await manager.take_expiry_back(released)
    again = replace(released, replaces_offset=-1, hold=True)
    await asyncio.gather(
        manager.take_expiry_back(again), change(manager, TopicPolicy(delete_paused=True))
    )
    assert held(manager) == [True] * 3


async def test_a_change_that_is_refused_holds_nothing(manager: RemoteLogMetadataManager) -> None:
    await change(manager, TopicPolicy(retention_ms=5))
    assert held(manager) == [False] * 3
    with pytest.raises(Conflict):
        await manager.set_topic_policy(TopicPolicyChange(TOPIC, TopicPolicy(copy_paused=True), -1))
    assert held(manager) == [False] * 3


async def test_a_partition_that_is_marked_for_deletion_is_left_alone(
    manager: RemoteLogMetadataManager,
) -> None:
    marked = PartitionDeleteState.DELETE_PARTITION_MARKED
    await manager.put_remote_partition_delete_metadata(
        RemotePartitionDeleteMetadata(HELD[0], 1, 0, marked, replaces_offset=-1, grace_ms=60_000)
    )
    before = manager.applied_offset
    await change(manager, TopicPolicy(copy_paused=True))
    assert manager.applied_offset - before == 3, "the policy, and the other two"
    assert held(manager) == [False, True, True]


@pytest.mark.parametrize("together", [trash_writes.TOGETHER_BYTES_MAX, 1])
async def test_a_record_that_is_refused_is_written_once_and_keeps_no_other_waiting(
    manager: RemoteLogMetadataManager, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    def out_of_date(rows: RowReader, tip: TopicIdPartition) -> Expiry:
        found = find_expiry(rows, tip)
        return replace(found, offset=found.offset - 1) if tip == HELD[0] else found

    monkeypatch.setattr(trash_writes, "find_expiry", out_of_date)
    monkeypatch.setattr(trash_writes, "TOGETHER_BYTES_MAX", together)
    before = manager.applied_offset
    await change(manager, TopicPolicy(copy_paused=True))
    assert manager.applied_offset - before == 4, "the policy, and one for each"
    assert held(manager) == [False, True, True]
