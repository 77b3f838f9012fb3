"""The metadata manager: written is readable, decided at apply, fenced by claims, durable."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    Fenced,
    InvalidRequest,
    OutcomeUnknown,
    Refused,
    RetryLater,
)
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.log.log_limits import LogLimits
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.metadata_log import Proposal, SnapshotId
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import (
    ClaimReset,
    FeatureLevel,
    LogStart,
    LostRange,
    PartitionDeleteUndo,
    PartitionModeChange,
    TopicPolicyChange,
)
from rlmm.records.records import encode
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata, SegmentState
from rlmm.view.view import View, digest_of
from tests.rlmm.log.crash_disk import CrashDisk, Survivors
from tests.rlmm.metadata_node import (
    NOW_MS,
    PARTITION,
    Node,
    claim,
    copied,
    deleted,
    finished,
    incarnation,
    open_log,
    open_node,
    running_node,
    started,
    until,
)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path) as node:
        yield node


@pytest.fixture
def manager(node: Node) -> RemoteLogMetadataManager:
    return node.manager


async def test_a_copied_segment_is_found_by_everything_that_looks(
    manager: RemoteLogMetadataManager,
) -> None:
    await copied(manager, 3)
    answer = manager.remote_log_segment_metadata(PARTITION, 1, 150)
    assert answer is not None
    assert answer.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
    assert answer.metadata.custom_metadata == b"where"
    assert manager.next_segment_with_txn_index(PARTITION, 1, 150) is not None
    assert manager.highest_offset_for_epoch(PARTITION, 1) == 299
    assert len(list(manager.list_remote_log_segments(PARTITION))) == 3
    of_epoch = list(manager.list_remote_log_segments(PARTITION, 1))
    assert [each.size_bytes for each in of_epoch] == [1_000, 1_000, 1_000]
    assert manager.is_ready(PARTITION)
    assert list(manager.partitions()) == [PARTITION]
    assert manager.find_partition("orders", 0) == PARTITION
    assert manager.find_partition("orders", 1) is None
    found = manager.find_segment(answer.metadata.segment_id.id)
    assert found == answer.metadata
    assert manager.segment(PARTITION, answer.metadata.segment_id.id) == found
    assert manager.left_overs(PARTITION) == ()
    assert manager.totals().copy_finished == 3
    state = manager.partition_state(PARTITION)
    assert state is not None
    assert state.next_offset == 300


async def test_a_write_returns_its_offset_and_is_readable_at_once(
    manager: RemoteLogMetadataManager,
) -> None:
    token = await copied(manager, 0)
    segment = started(0, token)
    offset = await manager.add_remote_log_segment_metadata(segment)
    assert manager.applied_offset >= offset > token
    assert manager.find_segment(segment.segment_id.id) == segment
    assert manager.left_overs(PARTITION) == (segment,)


async def test_a_repeated_write_has_no_effect_and_succeeds(
    manager: RemoteLogMetadataManager,
) -> None:
    token = await copied(manager, 0)
    segment = started(0, token)
    await manager.add_remote_log_segment_metadata(segment)
    before = manager.digest()
    await manager.add_remote_log_segment_metadata(segment)
    assert manager.digest() == before


async def test_verdicts_become_errors(manager: RemoteLogMetadataManager) -> None:
    token = await copied(manager, 1)
    with pytest.raises(Fenced, match="metadata offset"):
        await manager.add_remote_log_segment_metadata(started(5, token + 1))
    with pytest.raises(Conflict) as conflict:
        await manager.add_remote_log_segment_metadata(replace(started(0, token), size_bytes=1))
    assert conflict.value.reason == "CONFLICT"
    gap = started(9, token)
    await manager.add_remote_log_segment_metadata(gap)
    with pytest.raises(Conflict) as conflict:
        await manager.update_remote_log_segment_metadata(finished(gap))
    assert conflict.value.reason == "GAP"
    with pytest.raises(InvalidRequest):
        await manager.claim_partition(claim(epoch=7, number=2))


@pytest.mark.parametrize("state", list(SegmentState)[1:])
async def test_an_add_is_a_copy_started_and_an_update_is_not(
    manager: RemoteLogMetadataManager, state: SegmentState
) -> None:
    with pytest.raises(InvalidRequest, match="state"):
        await manager.add_remote_log_segment_metadata(replace(started(0, 1), state=state))
    with pytest.raises(InvalidRequest, match="state"):
        await manager.update_remote_log_segment_metadata(
            replace(finished(started(0, 1)), state=SegmentState.COPY_SEGMENT_STARTED)
        )


async def test_a_claim_answers_with_the_state_at_its_own_offset(
    manager: RemoteLogMetadataManager,
) -> None:
    token = await copied(manager, 2)
    left_over = started(2, token)
    await manager.add_remote_log_segment_metadata(left_over)
    # Behind the claim, in the same flush, the left-over is being deleted already.
    later = asyncio.create_task(manager.claim_partition(claim(number=2)))
    await asyncio.sleep(0)
    behind = encode(deleted(left_over, token=manager.applied_offset + 1))
    await manager._log.propose((behind,), deadline_s=5)
    answer = await later
    assert answer.token == answer.state.claim.token if answer.state.claim else None
    assert answer.left_overs == (left_over,)
    assert answer.state.next_offset == 200
    (now,) = manager.left_overs(PARTITION)
    assert now.state is SegmentState.DELETE_SEGMENT_STARTED


async def test_a_claim_fences_the_one_before(manager: RemoteLogMetadataManager) -> None:
    token = await copied(manager, 1)
    answer = await manager.claim_partition(claim(epoch=2, number=2, epochs=((1, 0), (2, 150))))
    assert answer.token > token
    with pytest.raises(Fenced):
        await manager.add_remote_log_segment_metadata(started(1, token))
    with pytest.raises(Fenced):
        await manager.claim_partition(claim(epoch=1, number=3))


async def test_many_claims_at_once_each_get_their_own_answer(
    manager: RemoteLogMetadataManager,
) -> None:
    partitions = [replace(PARTITION, partition=number) for number in range(100)]
    answers = await asyncio.gather(
        *(manager.claim_partition(claim(partition=partition)) for partition in partitions)
    )
    assert [answer.state.partition for answer in answers] == partitions
    assert len({answer.token for answer in answers}) == 100


async def test_the_other_writes_reach_their_rules(manager: RemoteLogMetadataManager) -> None:
    token = await copied(manager, 1)
    assert await manager.record_lost_range(LostRange(PARTITION, token, 100, 149, "gone")) > token
    assert await manager.record_log_start(LogStart(PARTITION, token, 1, 50)) > token
    await manager.set_topic_policy(
        TopicPolicyChange("orders", TopicPolicy(retention_ms=5), replaces_offset=-1)
    )
    assert manager.topic_policy("orders").retention_ms == 5
    assert manager.topic_policy("other") == TopicPolicy()
    await manager.put_remote_partition_delete_metadata(
        RemotePartitionDeleteMetadata(
            PARTITION, 1, NOW_MS, PartitionDeleteState.DELETE_PARTITION_MARKED
        )
    )
    state = manager.partition_state(PARTITION)
    assert state is not None
    assert state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED
    await manager.undo_partition_delete(PartitionDeleteUndo(PARTITION, state.delete_offset))
    await manager.reset_claim(ClaimReset(PARTITION, token))
    await manager.set_partition_mode(PartitionModeChange(PARTITION, Mode.PAUSED, state.mode_offset))
    state = manager.partition_state(PARTITION)
    assert state is not None
    assert (state.mode, state.claim, state.delete_state) == (Mode.PAUSED, None, None)
    assert (state.log_start_offset, state.next_offset) == (50, 150)


async def test_undecodable_records_are_rejected_and_nothing_stops(node: Node) -> None:
    await node.log.propose((Proposal(None, b"\xff garbage"), Proposal(1999, b"")), deadline_s=5)
    assert await copied(node.manager, 1) > 0
    assert node.manager.failure is None


async def test_waiting_for_an_offset(node: Node) -> None:
    manager = node.manager
    await manager.wait_for_offset(manager.applied_offset, deadline_s=5)
    waiting = asyncio.create_task(manager.wait_for_offset(manager.applied_offset + 1, deadline_s=5))
    await manager.claim_partition(claim())
    await waiting
    with pytest.raises(RetryLater, match="not applied here yet"):
        await manager.wait_for_offset(manager.applied_offset + 1, deadline_s=0.01)
    await manager.catch_up(deadline_s=5)
    assert manager.applied_offset >= await node.log.barrier(deadline_s=5) - 1


async def test_a_passed_deadline_is_an_unknown_outcome(manager: RemoteLogMetadataManager) -> None:
    with pytest.raises(OutcomeUnknown, match="read the row"):
        await manager.claim_partition(claim(), deadline_s=0)
    await manager.claim_partition(claim())  # as well if it was committed all the same
    assert manager.partition_state(PARTITION) is not None


async def test_after_close_everything_is_retried_later(tmp_path: Path) -> None:
    node = await open_node(tmp_path)
    manager = node.manager
    await node.close()
    await manager.close()
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: manager.claim_partition(claim()),
        lambda: manager.add_remote_log_segment_metadata(started(0, 1)),
        lambda: manager.wait_for_offset(0, deadline_s=1),
        lambda: manager.take_snapshot(),
        lambda: manager.segment_history(started(0, 1).segment_id, limit=1),
    ]
    for attempt in attempts:
        with pytest.raises(RetryLater):
            await attempt()
    assert not manager.is_ready(PARTITION)


async def test_close_answers_those_who_wait(tmp_path: Path) -> None:
    node = await open_node(tmp_path)
    waiting = asyncio.create_task(node.manager.claim_partition(claim()))
    offset = asyncio.create_task(node.manager.wait_for_offset(10_000, deadline_s=30))
    await asyncio.sleep(0)
    await node.close()
    with pytest.raises((OutcomeUnknown, RetryLater)):
        await waiting
    with pytest.raises(RetryLater):
        await offset


async def test_close_ends_a_snapshot_that_is_being_taken(tmp_path: Path) -> None:
    node = await open_node(tmp_path, limits=MetadataLimits(snapshot_slice_rows=1))
    await copied(node.manager, 20)
    taking = asyncio.create_task(node.manager.take_snapshot())
    await until(lambda: list((tmp_path / "metadata").rglob("*.part")) != [])
    await node.close()
    with pytest.raises(RetryLater):
        await taking
    assert list((tmp_path / "metadata").rglob("*.checkpoint*")) == []


async def test_a_restart_finds_everything_and_goes_on(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 5)
        digest, applied = node.manager.digest(), node.manager.applied_offset
    async with running_node(tmp_path, boot=2) as node:
        assert node.manager.digest() == digest
        assert node.manager.applied_offset > applied, "the new epoch's first record counts"
        await copied(node.manager, 2, first=5, boot=2)
        assert node.manager.highest_offset_for_epoch(PARTITION, 1) == 699


async def test_an_unflushed_view_is_replayed_from_the_log(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 5)
        digest = node.manager.digest()
        rows = list(node.view.rows_in_key_order())
    for path in (tmp_path / "view").iterdir():
        path.unlink()
    async with running_node(tmp_path, boot=2) as node:
        assert node.manager.digest() == digest == digest_of(rows)
        assert list(node.view.rows_in_key_order()) == rows


async def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    disk = CrashDisk()
    node = await open_node(tmp_path / "before", disk=disk)
    await copied(node.manager, 5)
    digest = node.manager.digest()
    disk.power_cut(Survivors.NONE, Survivors.NONE)
    # The log is what was synced; the view that was never flushed is gone with the machine.
    view = View.open(tmp_path / "after")
    log = await open_log(tmp_path / "before", view, disk=disk)
    manager = await RemoteLogMetadataManager.start(
        log, view, incarnation=incarnation(2), now_ms=lambda: NOW_MS
    )
    assert manager.digest() == digest
    await manager.close()
    await log.close()
    view.close()
    await node.close()


async def test_a_lost_view_starts_from_the_snapshot_and_the_tail(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 3)
        snapshot = await node.manager.take_snapshot()
        assert snapshot.end_offset == node.manager.applied_offset + 1
        assert node.manager.snapshot_age_ms() == 0
        await copied(node.manager, 1, first=3)
        digest = node.manager.digest()
    for path in (tmp_path / "view").iterdir():
        path.unlink()
    async with running_node(tmp_path, boot=2) as node:
        assert node.manager.digest() == digest


async def test_no_snapshot_is_written_below_the_newest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash a view may be behind the snapshot that its node took of it."""
    async with running_node(tmp_path) as node:
        await copied(node.manager, 3)
        later = SnapshotId(node.manager.applied_offset + 5, 1)
        monkeypatch.setattr(node.log, "latest_snapshot", lambda: later)
        assert await node.manager.take_snapshot() == later
        assert not [each for each in node.log._directory.snapshots() if each.end_offset > 0]


async def test_a_log_that_was_cut_is_followed_from_its_snapshot(tmp_path: Path) -> None:
    log_limits = LogLimits(segment_bytes_max=1_000, retain_bytes_max=0)
    node = await open_node(tmp_path, log_limits=log_limits)
    await copied(node.manager, 10)
    await node.manager.take_snapshot()
    assert node.manager.describe().log_start_offset > 0
    digest = node.manager.digest()
    await node.close()
    view_files = sorted((tmp_path / "view").iterdir())
    for path in view_files:
        path.unlink()
    node = await open_node(tmp_path, boot=2)
    assert node.manager.digest() == digest
    await node.close()


async def test_snapshots_of_equal_states_are_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        limits = MetadataLimits(snapshot_slice_rows=1 if name == "one" else 1_000)
        async with running_node(tmp_path / name, limits=limits) as node:
            await copied(node.manager, 20)
            snapshot = await node.manager.take_snapshot()
            assert await node.manager.take_snapshot() == snapshot
            path = node.log._directory.snapshot_path(snapshot)
            contents.append(path.read_bytes())
    assert contents[0] == contents[1]


async def test_a_snapshot_is_of_one_moment_while_writes_go_on(tmp_path: Path) -> None:
    async with running_node(tmp_path, limits=MetadataLimits(snapshot_slice_rows=1)) as node:
        token = await copied(node.manager, 5)
        digest, applied = node.manager.digest(), node.manager.applied_offset
        taking = asyncio.create_task(node.manager.take_snapshot())
        for number in range(5, 25):
            await node.manager.add_remote_log_segment_metadata(started(number, token))
        snapshot = await taking
        assert snapshot.end_offset > applied
        if snapshot.end_offset == applied + 1:
            assert digest != node.manager.digest()
        rows = list(node.log.read_snapshot(snapshot))
        assert len(rows) >= 5


@pytest.mark.parametrize(
    "limits", [MetadataLimits(snapshot_records=10), MetadataLimits(snapshot_bytes=1_000)]
)
async def test_snapshots_are_taken_by_themselves(tmp_path: Path, limits: MetadataLimits) -> None:
    async with running_node(tmp_path, limits=limits) as node:
        await copied(node.manager, 10)
        await until(lambda: node.log.latest_snapshot() is not None)


async def test_short_lives_add_up_to_a_snapshot(tmp_path: Path) -> None:
    limits = MetadataLimits(snapshot_records=30)
    for boot in range(1, 5):
        async with running_node(tmp_path, boot=boot, limits=limits) as node:
            await copied(node.manager, 4, first=4 * boot - 4, boot=boot)
            if boot == 4:
                await until(lambda: node.log.latest_snapshot() is not None)


async def test_the_view_is_flushed_by_itself(tmp_path: Path) -> None:
    async with running_node(tmp_path, limits=MetadataLimits(view_flush_records=5)) as node:
        await copied(node.manager, 10)
        await until(lambda: node.view.flushed_offset >= 5)


async def test_flushes_that_follow_soon_are_those_of_a_busy_log_until_none_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool | None] = []

    def flush(view: View, *, busy: bool | None = None) -> None:
        told.append(busy)
        flushed(view, busy=busy)

    flushed = View.flush
    monkeypatch.setattr(View, "flush", flush)
    limits = MetadataLimits(view_flush_records=1, view_quiet_s=3_600)
    async with running_node(tmp_path, limits=limits) as node:
        copies = itertools.count()
        while len(told) < 3:
            await copied(node.manager, 1, first=next(copies))
        assert not told[0]
        assert all(told[1:])
        # Behind the next flush no time is short enough.
        node.manager._limits = replace(limits, view_quiet_s=0)
        await copied(node.manager, 1, first=next(copies))
        await until(lambda: told[-1] is False)


async def test_a_feature_level_this_program_does_not_know_stops_it(tmp_path: Path) -> None:
    node = await open_node(tmp_path)
    applied = node.manager.applied_offset
    with pytest.raises(OutcomeUnknown, match="feature level 99"):
        await node.manager._write(FeatureLevel(99, -1), 5)
    assert node.manager.applied_offset == applied
    assert len(node.failures) == 1
    assert "newer Strandline" in node.failures[0]
    with pytest.raises(RetryLater, match="Restart the node"):
        await node.manager.claim_partition(claim())
    assert not node.manager.is_ready(PARTITION)
    await node.close()
    with pytest.raises(Refused, match="feature level 99"):
        await open_node(tmp_path, boot=2)


async def test_a_log_that_rots_stops_applying(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 3)
    for path in (tmp_path / "view").iterdir():
        path.unlink()
    (segment,) = (tmp_path / "metadata").rglob(f"{0:020d}.log")
    data = bytearray(segment.read_bytes())
    data[400] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptData, match="damaged or replaced disk"):
        await open_node(tmp_path, boot=2)


async def test_history_lists_what_was_proposed_about_a_segment(
    manager: RemoteLogMetadataManager,
) -> None:
    await copied(manager, 3)
    segment = started(1, 0)
    with pytest.raises(Fenced):
        await manager.add_remote_log_segment_metadata(replace(segment, token=10_000))
    history = await manager.segment_history(segment.segment_id, limit=10)
    assert [type(entry.record).__name__ for entry in history] == [
        "RemoteLogSegmentMetadata",
        "RemoteLogSegmentMetadataUpdate",
        "RemoteLogSegmentMetadata",
    ]
    assert [entry.offset for entry in history] == sorted(entry.offset for entry in history)
    assert {entry.epoch for entry in history} == {1}
    assert {entry.timestamp_ms for entry in history} == {NOW_MS}
    assert await manager.segment_history(segment.segment_id, limit=1) == history[:1]
    other = replace(
        segment.segment_id, partition=TopicIdPartition("other", Uuid(b"topic-id-other.."), 0)
    )
    assert await manager.segment_history(other, limit=10) == ()
    for limit in (0, -1, 10**6):
        with pytest.raises(InvalidRequest, match="limit"):
            await manager.segment_history(segment.segment_id, limit=limit)


async def test_it_knows_its_incarnation(manager: RemoteLogMetadataManager) -> None:
    assert manager.incarnation == incarnation()
    assert manager.snapshot_age_ms() is None
