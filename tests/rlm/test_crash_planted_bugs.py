"""The enumerations of crashes bite: each planted bug is found by stopping at some step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_formats.batch_scan import BatchRun
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.copier import Copier, CopyOrder
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_work import PartitionWork
from rlm.data_plane.copy_job import CopyJob, CopyResult, OnProgress
from rlm.data_plane.data_plane import DataPlane
from rlm.delete.clean_up import CleanUp
from rlm.format.object_keys import segment_keys
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.apply.apply import _RULES
from rlmm.apply.outcome import Draft, Outcome, find_live
from rlmm.apply.segments import apply_add
from rlmm.rows.partitions import PartitionRow
from rlmm.segment import Incarnation, RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from rsm_backends.memory import MemoryStore
from tests.rlm.crash_world import (
    DAMAGED,
    GOES_WELL,
    UPLOAD_FAILS,
    End,
    Scenario,
    end_everywhere,
    unharmed,
)
from tests.rlm.overtaken import overtaken_at
from tests.rlm.planner_facts import uuid

Plant = Callable[[pytest.MonkeyPatch], None]


class Blind:
    """A batch scanner that sees no batch, and so finds nothing wrong."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0

    def feed_runs(self, data: bytes) -> Iterator[BatchRun]:
        self.position += len(data)
        return iter(())

    def finish(self) -> None:
        """All is well."""


def skip_verification(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("rlm.data_plane.segment_verification.BatchScanner", Blind)


def delete_before_delete_started(patch: pytest.MonkeyPatch) -> None:
    mark = CleanUp.mark

    async def too_early(
        self: CleanUp,
        row: RemoteLogSegmentMetadata,
        token: int,
        *,
        expected: SegmentState,
        why: str,
        policy_offset: int | None,
    ) -> bool:
        await self.delete_objects(row)
        return await mark(self, row, token, expected=expected, why=why, policy_offset=policy_offset)

    patch.setattr(CleanUp, "mark", too_early)


def finish_before_the_upload_ended(patch: pytest.MonkeyPatch) -> None:
    copy = DataPlane.copy
    going_on: list[asyncio.Task[CopyResult]] = []

    async def early(self: DataPlane, job: CopyJob, _: OnProgress | None = None) -> CopyResult:
        scratch = DataPlane({job.store: MemoryStore(lambda: 0)}, now_ms=lambda: 0)
        result = await copy(scratch, job)
        going_on.append(asyncio.create_task(copy(self, job), name="drive on with the upload"))
        return result

    patch.setattr(DataPlane, "copy", early)


def forget_left_overs(patch: pytest.MonkeyPatch) -> None:
    async def look_away(_: PartitionDriver, work: PartitionWork) -> None:
        assert work.claim is not None

    patch.setattr(PartitionDriver, "clean_left_overs", look_away)


def reuse_the_segment_id(patch: pytest.MonkeyPatch) -> None:
    describe = Copier._describe

    async def same_id(self: Copier, order: CopyOrder) -> RemoteLogSegmentMetadata:
        row = await describe(self, order)
        id_ = RemoteLogSegmentId(order.partition, uuid(row.start_offset + 7))
        return replace(row, segment_id=id_)

    patch.setattr(Copier, "_describe", same_id)


def do_not_wait_for_the_deadline(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: CleanUp, _: RemoteLogSegmentMetadata, *, uploader_stopped: bool) -> int:
        return self.around.ambient.now_ms() + round(uploader_stopped)

    patch.setattr(CleanUp, "due_ms", at_once)


def delete_once_only(patch: pytest.MonkeyPatch) -> None:
    delete_objects = CleanUp.delete_objects
    deleted: set[RemoteLogSegmentId] = set()

    async def once(self: CleanUp, row: RemoteLogSegmentMetadata) -> None:
        if row.segment_id not in deleted:
            deleted.add(row.segment_id)
            await delete_objects(self, row)

    patch.setattr(CleanUp, "delete_objects", once)


def leave_uploads_unaborted(patch: pytest.MonkeyPatch) -> None:
    async def objects_only(self: CleanUp, row: RemoteLogSegmentMetadata) -> None:
        for tier in self.stores.by_name.values():
            keys = segment_keys(tier.prefix, row.segment_id, row.start_offset).all()
            await tier.store.delete_many(keys)

    patch.setattr(CleanUp, "delete_objects", objects_only)


def finish_the_delete_before_the_objects_go(patch: pytest.MonkeyPatch) -> None:
    remove = CleanUp.remove
    elsewhere = TierStore("elsewhere", MemoryStore(lambda: 0), "")

    async def row_first(
        self: CleanUp, row: RemoteLogSegmentMetadata, due_ms: int, why: str
    ) -> None:
        nowhere = TierStores({elsewhere.name: elsewhere}, elsewhere.name)
        await remove(replace(self, stores=nowhere), row, due_ms, why)
        await self.delete_objects(row)

    patch.setattr(CleanUp, "remove", row_first)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, and where it has to show."""

    plant: Plant
    scenario: Scenario
    end: End


PLANTED = (
    Planted(skip_verification, DAMAGED, End.KILLED),
    Planted(delete_before_delete_started, UPLOAD_FAILS, End.KILLED),
    Planted(finish_before_the_upload_ended, GOES_WELL, End.KILLED),
    Planted(forget_left_overs, GOES_WELL, End.KILLED),
    Planted(reuse_the_segment_id, GOES_WELL, End.KILLED),
    Planted(do_not_wait_for_the_deadline, GOES_WELL, End.LATE),
    Planted(delete_once_only, GOES_WELL, End.LATE),
    Planted(leave_uploads_unaborted, GOES_WELL, End.KILLED),
    Planted(finish_the_delete_before_the_objects_go, UPLOAD_FAILS, End.KILLED),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__)
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted
) -> None:
    planted.plant(monkeypatch)
    with pytest.raises(AssertionError, match=f"{planted.end.value} at step"):
        end_everywhere(tmp_path, planted.scenario, planted.end)


def ignore_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Every writer of a segment record counts as the one whose claim stands."""
    writer: list[tuple[Incarnation | None, int]] = []

    def find_unfenced(draft: Draft, partition: TopicIdPartition) -> PartitionRow | Outcome:
        row = find_live(draft, partition)
        if isinstance(row, Outcome) or row.claim is None or not writer or writer[-1][0] is None:
            return row
        incarnation, token = writer[-1]
        assert incarnation is not None
        return row._replace(claim=replace(row.claim, incarnation=incarnation, token=token))

    def add(draft: Draft, added: RemoteLogSegmentMetadata) -> Outcome:
        writer.append((added.writer, added.token))
        try:
            return apply_add(draft, added)
        finally:
            writer.pop()

    patch.setattr("rlmm.apply.segments.find_live", find_unfenced)
    patch.setitem(cast(dict[type, object], _RULES), RemoteLogSegmentMetadata, add)


def test_an_ignored_fence_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_the_fence(monkeypatch)
    names = overtaken_at(tmp_path / "steps", -1, unharmed)
    number = names.index("before COPY_SEGMENT_STARTED") + 1
    with pytest.raises(AssertionError):
        overtaken_at(tmp_path / "paused", number, unharmed)
