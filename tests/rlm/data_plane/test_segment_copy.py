"""Copies of one segment: equal bytes, the manifest last, and nothing half-right ever finished."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import Buffer, crc32c
from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InternalError,
    InvalidRequest,
    NotFound,
    RetryLater,
)
from rlm.data_plane import segment_copy
from rlm.data_plane.copy_job import CopyJob, CopyProgress
from rlm.data_plane.segment_copy import copy_segment
from rlm.data_plane.segment_source import SegmentSource
from rlm.format.manifest import IndexType, ProducerSnapshotOrigin, parse_manifest
from rlm.format.object_keys import segment_keys
from rlm.local_log.log_dir import find_partitions
from rsm_backends.memory import MemoryStore
from rsm_backends.multipart import UploadResult
from rsm_backends.store import ObjectInfo, ObjectStore, UploadedPart
from rsm_backends.streams import read_all
from tests.rlm.broker_files import CAPTURED, ReplicaWriter, write_log_dir
from tests.rlm.tier import NOW_MS, PREFIX, STORE, copy_job, first_job, now_ms, small_parts
from tests.rsm_backends.faulty import FaultKind, FaultyStore, ScriptedFaults

PART_BYTES = 4_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(now_ms)


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """A segment of about 30 kB with an aborted transaction."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    for _ in range(12):
        replica.append(5, value_bytes=400, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=False)
    replica.roll()
    return replica


async def stored_keys(store: ObjectStore) -> list[str]:
    return [info.key for info in (await store.list_page("")).objects]


async def no_upload_is_left(store: ObjectStore, replica: ReplicaWriter) -> bool:
    job = first_job(replica.log_dir)
    keys = segment_keys(PREFIX, job.segment_id, 0)
    return all([await store.list_uploads(key) == () for key in keys.all()])


async def test_the_objects_are_the_segments_bytes(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    job = first_job(replica.log_dir)
    result = await copy_segment(job, store, now_ms=now_ms)
    keys = segment_keys(PREFIX, job.segment_id, 0)
    log = await read_all(store, keys.log)
    indexes = await read_all(store, keys.indexes)
    manifest_bytes = await read_all(store, keys.manifest)
    assert log == replica.path(0, ".log").read_bytes()
    manifest = parse_manifest(manifest_bytes, source="m")
    assert manifest.segment_id == job.segment_id
    assert (manifest.start_offset, manifest.end_offset) == (0, 60)
    assert manifest.max_timestamp_ms == job.max_timestamp_ms == result.max_timestamp_ms
    for index, suffix in (
        (IndexType.OFFSET, ".index"),
        (IndexType.TIMESTAMP, ".timeindex"),
        (IndexType.TRANSACTION, ".txnindex"),
    ):
        part = manifest.indexes[index]
        found = indexes[part.position : part.position + part.size]
        assert found == replica.path(0, suffix).read_bytes(), "the broker's own, which are right"
    recorded = result.custom_metadata
    assert recorded.store == STORE
    for data, size, crc in (
        (log, recorded.log_bytes, recorded.log_crc32c),
        (indexes, recorded.indexes_bytes, recorded.indexes_crc32c),
        (manifest_bytes, recorded.manifest_bytes, recorded.manifest_crc32c),
    ):
        assert (size, crc) == (len(data), crc32c(data))
    assert result.log_bytes == len(log)
    assert not result.txn_index_empty
    assert result.producer_snapshot is ProducerSnapshotOrigin.COPIED


async def test_every_captured_segment_is_copied_byte_for_byte(store: MemoryStore) -> None:
    for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions:
        for segment in partition.segments[:-1]:
            job = small_parts(copy_job(partition, segment), PART_BYTES)
            await copy_segment(job, store, now_ms=now_ms)
            key = segment_keys(PREFIX, job.segment_id, job.start_offset).log
            assert await read_all(store, key) == segment.log_path.read_bytes()


async def test_parts_make_the_same_objects_and_progress_ends_complete(
    replica: ReplicaWriter,
) -> None:
    whole, parts = MemoryStore(now_ms), MemoryStore(now_ms)
    job = first_job(replica.log_dir)
    told: list[CopyProgress] = []
    one = await copy_segment(job, whole, now_ms=now_ms)
    other = await copy_segment(
        small_parts(job, PART_BYTES), parts, now_ms=now_ms, on_progress=told.append
    )
    assert one == other
    for key in await stored_keys(whole):
        assert await read_all(whole, key) == await read_all(parts, key)
    done = [progress.bytes_done for progress in told]
    assert len(done) > 5
    assert done == sorted(done)
    assert told[-1].bytes_done == told[-1].bytes_total


class OrderedStore(MemoryStore):
    """Notes what becomes visible, and runs something before the manifest."""

    def __init__(self, before_indexes: Callable[[], object] = lambda: None) -> None:
        super().__init__(now_ms)
        self.puts: list[tuple[str, bool]] = []
        self.before_indexes = before_indexes

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        if key.endswith(".indexes"):
            self.before_indexes()
        self.puts.append((key.rsplit(".", 1)[1], create_only))
        return await super().put(key, data, crc32c=crc32c, create_only=create_only)


async def test_the_manifest_is_last_and_create_only(replica: ReplicaWriter) -> None:
    store = OrderedStore()
    await copy_segment(first_job(replica.log_dir), store, now_ms=now_ms)
    assert store.puts == [("log", False), ("indexes", False), ("rsm-manifest", True)]


async def test_a_manifest_that_is_there_already_is_never_overwritten(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    job = first_job(replica.log_dir)
    await copy_segment(job, store, now_ms=now_ms)
    with pytest.raises(AlreadyExists):
        await copy_segment(replace(job, event_timestamp_ms=5), store, now_ms=now_ms)


async def test_a_damaged_segment_leaves_no_log_object(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    path = replica.path(0, ".log")
    log = bytearray(path.read_bytes())
    log[-1] ^= 1
    path.write_bytes(log)
    with pytest.raises(CorruptData) as caught:
        await copy_segment(
            small_parts(first_job(replica.log_dir), PART_BYTES), store, now_ms=now_ms
        )
    assert caught.value.source == str(path)
    assert await stored_keys(store) == []
    assert await no_upload_is_left(store, replica)


def truncate(replica: ReplicaWriter) -> None:
    os.truncate(replica.path(0, ".log"), 100)


def diverge(replica: ReplicaWriter) -> None:
    (replica.directory / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n1 20\n")


@pytest.mark.parametrize("change", [truncate, diverge])
async def test_a_source_that_changes_after_its_last_byte_gets_no_manifest(
    replica: ReplicaWriter, change: Callable[[ReplicaWriter], None]
) -> None:
    job = first_job(replica.log_dir)
    store = OrderedStore(before_indexes=lambda: change(replica))
    with pytest.raises(Conflict) as caught:
        await copy_segment(job, store, now_ms=now_ms)
    assert caught.value.reason == "SOURCE_CHANGED"
    assert not any(key.endswith("manifest") for key in await stored_keys(store))


async def test_local_retention_during_the_copy_loses_nothing(replica: ReplicaWriter) -> None:
    log = replica.path(0, ".log").read_bytes()
    job = first_job(replica.log_dir)
    store = OrderedStore(before_indexes=lambda: replica.cut_head(61))
    await copy_segment(job, store, now_ms=now_ms)
    assert await read_all(store, segment_keys(PREFIX, job.segment_id, 0).log) == log


async def test_a_segment_that_is_gone_is_a_conflict(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    job = first_job(replica.log_dir)
    replica.cut_head(61)
    with pytest.raises(Conflict) as caught:
        await copy_segment(job, store, now_ms=now_ms)
    assert caught.value.reason == "SOURCE_CHANGED"


async def test_after_the_deadline_nothing_is_sent(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    job = replace(first_job(replica.log_dir), upload_deadline_ms=NOW_MS)
    with pytest.raises(RetryLater, match="deadline"):
        await copy_segment(job, store, now_ms=now_ms)
    assert await stored_keys(store) == []


async def test_the_deadline_is_looked_at_before_every_request(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    job = small_parts(first_job(replica.log_dir), PART_BYTES)
    left = iter([NOW_MS] * 4)
    with pytest.raises(RetryLater, match="deadline"):
        await copy_segment(job, store, now_ms=lambda: next(left, job.upload_deadline_ms))
    assert await stored_keys(store) == []
    assert await no_upload_is_left(store, replica)


async def test_a_clock_that_is_set_back_meanwhile_puts_no_deadline_off(
    replica: ReplicaWriter,
) -> None:
    class Hanging(MemoryStore):
        """Takes the start of an upload and answers no part."""

        async def put_part(
            self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
        ) -> UploadedPart:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    job = small_parts(first_job(replica.log_dir), PART_BYTES)
    job = replace(job, upload_deadline_ms=NOW_MS + 20)
    year_ms, first = 365 * 86_400_000, iter([NOW_MS])
    with pytest.raises(RetryLater, match="deadline"):
        await copy_segment(job, Hanging(now_ms), now_ms=lambda: next(first, NOW_MS - year_ms))


@pytest.mark.parametrize("operation", ["start_multipart", "put_part", "complete_multipart", "put"])
async def test_errors_of_the_store_pass_as_they_are(
    store: MemoryStore, replica: ReplicaWriter, operation: str
) -> None:
    faulty = FaultyStore(store, ScriptedFaults([(operation, FaultKind.BEFORE_EFFECT)]))
    with pytest.raises(RetryLater):
        await copy_segment(
            small_parts(first_job(replica.log_dir), PART_BYTES), faulty, now_ms=now_ms
        )
    assert not any(key.endswith("manifest") for key in await stored_keys(store))


class MissingBucket(MemoryStore):
    """A store whose bucket is not there."""

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        raise NotFound("no such bucket")


async def test_a_missing_bucket_is_told(replica: ReplicaWriter) -> None:
    with pytest.raises(NotFound, match="bucket"):
        await copy_segment(first_job(replica.log_dir), MissingBucket(now_ms), now_ms=now_ms)


class SlowStore(MemoryStore):
    """A part upload that never ends."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.began = asyncio.Event()

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        self.began.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_a_cancelled_copy_gives_its_descriptors_back(replica: ReplicaWriter) -> None:
    job = first_job(replica.log_dir)
    before = len(os.listdir("/proc/self/fd"))
    store = SlowStore()
    task = asyncio.create_task(copy_segment(job, store, now_ms=now_ms))
    await store.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_copy_cancelled_while_it_opens_closes_what_was_opened(
    replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = first_job(replica.log_dir)
    opened: list[SegmentSource] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def opening(job: CopyJob) -> SegmentSource:
        source = SegmentSource(job)
        opened.append(source)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(timeout=30)
        return source

    monkeypatch.setattr(segment_copy, "SegmentSource", opening)
    task = asyncio.create_task(copy_segment(job, MemoryStore(now_ms), now_ms=now_ms))
    while not opened:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    while opened[0]._files:
        await asyncio.sleep(0.001)


async def test_a_failed_open_after_a_cancellation_is_no_second_error(
    replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = first_job(replica.log_dir)
    replica.cut_head(61)
    task = asyncio.create_task(copy_segment(job, MemoryStore(now_ms), now_ms=now_ms))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, Conflict)):
        await task
    await asyncio.to_thread(lambda: None)


async def test_a_store_name_that_does_not_fit_is_told_before_anything_is_sent(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    with pytest.raises(InvalidRequest, match="store"):
        await copy_segment(
            replace(first_job(replica.log_dir), store="x" * 41), store, now_ms=now_ms
        )
    assert await stored_keys(store) == []


async def test_a_transaction_index_that_came_after_planning_is_a_change(
    store: MemoryStore, replica: ReplicaWriter
) -> None:
    job = replace(first_job(replica.log_dir), txn_index_empty=True)
    with pytest.raises(Conflict) as caught:
        await copy_segment(job, store, now_ms=now_ms)
    assert caught.value.reason == "SOURCE_CHANGED"


async def test_what_was_sent_is_compared_with_what_was_verified(
    store: MemoryStore, replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lying(
        store: ObjectStore, key: str, parts: AsyncIterator[bytes], *_: object, **__: object
    ) -> UploadResult:
        size = sum([len(part) async for part in parts])
        return UploadResult(size, 0)

    monkeypatch.setattr(segment_copy, "upload_parts", lying)
    with pytest.raises(InternalError, match="verified"):
        await copy_segment(first_job(replica.log_dir), store, now_ms=now_ms)
