"""Reassembles the files of a damaged segment in a directory from which it can be copied. Runs in a
worker.

The metadata has the length and CRC32C of `.log`, by which every source is judged. The segments of
a different replica begin and end at different offsets, but their batches have the same bytes, so
the batches with this segment's offsets are used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_formats import transaction_index
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, NotFound, RetryLater, StrandlineError
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.properties import encode_partition_metadata
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, parse_header
from rlm.data_plane.repair_jobs import (
    READ_TOLD_BYTES,
    ExpectedObject,
    GatherJob,
    GatherResult,
    LocalLog,
    LocalSource,
    OnRead,
    tell_nobody,
)
from rlm.data_plane.unnamed_indexes import unnamed_indexes
from rlm.format.manifest import IndexType, parse_manifest
from rlm.format.object_keys import ObjectSuffix
from rlm.local_log.replica_directory import read_small
from rlmm.log.disk import LOST
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream

PIECE_BYTES = 1024 * 1024
RETRY_AFTER_MS = 60_000
THE_TIER = "the segment's own objects"
_INDEX_SUFFIXES = {
    IndexType.OFFSET: INDEX_SUFFIX,
    IndexType.TIMESTAMP: TIME_INDEX_SUFFIX,
    IndexType.TRANSACTION: TRANSACTION_INDEX_SUFFIX,
}
_Open = Callable[[], AsyncIterator[bytes]]


class NoRoom(RetryLater):
    """The disk of this node has no space or can't be written, so no source could be judged."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=RETRY_AFTER_MS)


def require_room(directory: Path, wanted_bytes: int, free_bytes_min: int) -> None:
    """Raise NoRoom if `wanted_bytes` more would leave less than `free_bytes_min` free. The
    directory must exist.
    """
    with writing_to(directory):
        space = os.statvfs(directory)
    free_bytes, needed = space.f_bavail * space.f_frsize, wanted_bytes + free_bytes_min
    if free_bytes < needed:
        raise NoRoom(
            f"{directory} has {free_bytes} bytes free, but a repair of this segment needs {needed} "
            "(including repair.free_bytes_min, which stays free): make room on that disk"
        )


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn errors of writes in the directory into NoRoom."""
    try:
        yield
    except OSError as error:
        raise NoRoom(
            f"the files of a repair can't be written to {directory} "
            f"({error.strerror or error}): make room on that disk, or repair it"
        ) from error


def from_threads(on_read: OnRead) -> OnRead:
    """An `on_read` that threads may call. Call this function on the event loop."""
    loop = asyncio.get_running_loop()

    def tell(size: int) -> None:
        loop.call_soon_threadsafe(on_read, size)

    return tell


async def gather(job: GatherJob, store: ObjectStore, on_read: OnRead = tell_nobody) -> GatherResult:
    """Try the sources in order and, if the job has a directory, write the files there. Raises
    NoRoom if they can't be written.
    """
    if job.directory is not None:
        await asyncio.to_thread(_make, job, job.directory)
    return await _Gathering(job, store, on_read).run()


class _Gathering:
    """One run of a GatherJob."""

    def __init__(self, job: GatherJob, store: ObjectStore, on_read: OnRead) -> None:
        self._job = job
        self._store = store
        self._on_read = on_read
        self._tried: list[str] = []
        self._unanswered: list[str] = []

    async def run(self) -> GatherResult:
        source, lacks = await self._gather_log(), ""
        if not source:
            return GatherResult(source, tuple(self._tried), tuple(self._unanswered))
        manifest = await self._whole(ObjectSuffix.MANIFEST)
        if not await self._gather_indexes(manifest) and not self._job.txn_index_empty:
            lacks = "no source has its whole transaction index, which has entries"
        opened = None if manifest is None else _open_at_base(self._job, manifest)
        return GatherResult(source, tuple(self._tried), tuple(self._unanswered), lacks, opened)

    # ---- the log

    async def _gather_log(self) -> str:
        expected = self._job.object(ObjectSuffix.LOG)
        async for name, open_it in self._logs(expected):
            if await self._tell(name, self._take(expected, open_it)):
                return name
        return ""

    async def _logs(self, expected: ExpectedObject) -> AsyncIterator[tuple[str, _Open]]:
        if self._job.replica is not None:
            replica = self._job.replica
            yield replica.name, lambda: _local(self._job, replica, self._on_read)
            return
        if ObjectSuffix.LOG not in self._job.damaged:
            yield THE_TIER, lambda: self._store.get(expected.key)
        for source in self._job.local:
            yield (
                source.name,
                lambda source=source: _local(self._job, source, self._on_read),  # type: ignore[misc]
            )
        async for version_id in self._versions(expected):
            yield (
                f"version {version_id} of its .{expected.suffix}",
                lambda id_=version_id: self._store.get_version(expected.key, id_),  # type: ignore[misc]
            )

    async def _versions(self, expected: ExpectedObject) -> AsyncIterator[str]:
        """The ids of the object's versions with the right length, newest first."""
        try:
            versions = await self._store.versions(expected.key)
        except StrandlineError as error:
            self._will_not_do(f"versions of its .{expected.suffix}", error)
            return
        for version in versions:
            if version.size == expected.size_bytes:
                yield version.version_id

    async def _tell(self, name: str, wrong: Awaitable[str]) -> bool:
        """True if a source is right; its fault or error is noted otherwise."""
        try:
            text = await wrong
        except (StrandlineError, OSError) as error:
            self._will_not_do(name, error)
            return False
        if text:
            self._tried.append(f"{name}: {text}")
        return not text

    def _will_not_do(self, name: str, error: StrandlineError | OSError) -> None:
        """Note the error of a source: it is missing or damaged (`tried`), or it could not be read
        now (`unanswered`). NoRoom is raised.
        """
        if isinstance(error, NoRoom):
            raise error
        if isinstance(error, NotFound | FileNotFoundError):
            self._tried.append(f"{name}: it does not exist")
        elif isinstance(error, CorruptData):
            self._tried.append(f"{name}: {error}")
        elif isinstance(error, OSError):
            is_damage = error.errno in LOST
            where = self._tried if is_damage else self._unanswered
            where.append(f"{name}: {error.strerror or error}")
        else:
            self._unanswered.append(f"{name}: {error}")

    async def _take(self, expected: ExpectedObject, open_it: _Open) -> str:
        """Write a `.log` while it is read; returns its fault, empty if it is right."""
        job = self._job
        path = _file(job, job.start_offset, LOG_SUFFIX)
        size = crc = 0
        async with closing_stream(open_it()) as stream:
            async for piece in _in_large_pieces(stream, self._on_read):
                size += len(piece)
                if size > expected.size_bytes:
                    break
                crc = crc32c(piece, crc)
                if path is not None:
                    with writing_to(path.parent):
                        await asyncio.to_thread(_write_at, path, piece, size - len(piece))
        if wrong := expected.wrong(size, crc):
            return wrong
        if path is not None:
            # Without a time index, the file's time is used as the time of its newest record.
            at_ns = max(job.max_timestamp_ms, 0) * 1_000_000
            with writing_to(path.parent):
                await asyncio.to_thread(os.utime, path, ns=(at_ns, at_ns))
        return ""

    # ---- what belongs to it

    async def _gather_indexes(self, manifest: bytes | None) -> bool:
        """Write the indexes that can be found; True if the transaction index is among them. The
        copy rebuilds the other indexes.
        """
        indexes = await self._whole(ObjectSuffix.INDEXES)
        if indexes is not None and manifest is not None:
            return await asyncio.to_thread(self._split, indexes, manifest)
        if indexes is not None and await asyncio.to_thread(self._find_in, indexes):
            return True
        for source in self._job.local:
            on_walk = from_threads(self._on_read)
            beside = asyncio.to_thread(self._copy_beside, source, manifest, on_walk)
            if await self._tell(f"indexes of {source.name}", beside):
                return True
        return False

    async def _whole(self, suffix: ObjectSuffix) -> bytes | None:
        expected = self._job.object(suffix)
        if suffix not in self._job.damaged:
            data = await self._small(expected, lambda: self._store.get(expected.key))
            if data is not None:
                return data
        async for version_id in self._versions(expected):
            data = await self._small(
                expected,
                lambda id_=version_id: self._store.get_version(expected.key, id_),  # type: ignore[misc]
            )
            if data is not None:
                return data
        return None

    async def _small(self, expected: ExpectedObject, open_it: _Open) -> bytes | None:
        data = bytearray()
        try:
            async with closing_stream(open_it()) as stream:
                async for piece in stream:
                    self._on_read(len(piece))
                    data += piece
                    if len(data) > expected.size_bytes:
                        return None
        except StrandlineError as error:
            self._will_not_do(f"its .{expected.suffix}", error)
            return None
        return None if expected.wrong(len(data), crc32c(data)) else bytes(data)

    def _split(self, indexes: bytes, manifest: bytes) -> bool:
        job = self._job
        ranges = parse_manifest(manifest, source=str(job.segment_id)).indexes
        for index, suffix in _INDEX_SUFFIXES.items():
            if index in ranges:
                at = ranges[index]
                _put(job, job.start_offset, suffix, indexes[at.position : at.position + at.size])
        snapshot = ranges.get(IndexType.PRODUCER_SNAPSHOT)
        if snapshot is not None and snapshot.size:
            data = indexes[snapshot.position : snapshot.position + snapshot.size]
            _put(job, job.end_offset + 1, SNAPSHOT_SUFFIX, data)
        found = ranges.get(IndexType.TRANSACTION)
        return found is not None and found.size > 0

    def _find_in(self, indexes: bytes) -> bool:
        """Write the indexes of a whole `.indexes` whose manifest is missing; False if their borders
        are ambiguous.
        """
        job = self._job
        found = unnamed_indexes(indexes)
        if found is None or job.txn_index_empty == bool(found.transactions):
            return False
        if found.transactions:
            _put(job, job.start_offset, TRANSACTION_INDEX_SUFFIX, found.transactions)
        if found.snapshot:
            _put(job, job.end_offset + 1, SNAPSHOT_SUFFIX, found.snapshot)
        return True

    def _copy_beside(self, source: LocalSource, manifest: bytes | None, on_walk: OnRead) -> str:
        """Use the index files beside the logs of a source; of transaction indexes, the entries for
        the job's offsets. Returns the reason why they can't be used, empty if they were.
        """
        job = self._job
        logs = _over(job, source)
        if not logs:
            return "they have none of the segment's offsets"
        if not job.txn_index_empty and not _has_all(job, logs, on_walk):
            # The abort of a transaction that began below the segment shows only in its index entry.
            return "they lack some of the segment's offsets, and so perhaps aborts"
        aborted = []
        for log in logs:
            path = log.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
            data = _read_if_there(path) or b""
            aborted += [
                entry
                for entry in transaction_index.parse(data, source=str(path))
                if job.start_offset <= entry.last_offset <= job.end_offset
            ]
        data = transaction_index.encode(aborted)
        if not job.txn_index_empty and (wrong := _not_as_told(job, manifest, data)):
            return wrong
        if aborted:
            _put(job, job.start_offset, TRANSACTION_INDEX_SUFFIX, data)
        if [(each.base_offset, each.next_base_offset) for each in logs] == [
            (job.start_offset, job.end_offset + 1)
        ]:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                _copy(job, job.start_offset, suffix, logs[0].path.with_suffix(suffix))
        for offset in (job.start_offset, job.end_offset + 1):
            for log in (logs[0], logs[-1]):
                name = segment_file_name(offset, SNAPSHOT_SUFFIX)
                _copy(job, offset, SNAPSHOT_SUFFIX, log.path.with_name(name))
        return ""


def _make(job: GatherJob, directory: Path) -> None:
    """Make the directory with the files that each partition has, and an empty next segment."""
    with writing_to(directory):
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    require_room(directory, job.object(ObjectSuffix.LOG).size_bytes, job.free_bytes_min)
    with writing_to(directory):
        (directory / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(job.topic_id))
        (directory / LEADER_EPOCH_CHECKPOINT_FILE).write_bytes(job.checkpoint)
        (directory / segment_file_name(job.start_offset, LOG_SUFFIX)).write_bytes(b"")
        (directory / segment_file_name(job.end_offset + 1, LOG_SUFFIX)).write_bytes(b"")


def _file(job: GatherJob, offset: int, suffix: str) -> Path | None:
    return None if job.directory is None else job.directory / segment_file_name(offset, suffix)


def _put(job: GatherJob, offset: int, suffix: str, data: bytes) -> None:
    path = _file(job, offset, suffix)
    if path is not None:
        with writing_to(path.parent):
            path.write_bytes(data)


def _copy(job: GatherJob, offset: int, suffix: str, source: Path) -> None:
    data = _read_if_there(source)
    if data is not None:
        _put(job, offset, suffix, data)


def _read_if_there(path: Path) -> bytes | None:
    try:
        return read_small(path)
    except FileNotFoundError:
        return None


def _write_at(path: Path, data: bytes, at: int) -> None:
    """Write at a position and truncate the file after it: an earlier source may have left bytes."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
        file.truncate()


def _over(job: GatherJob, source: LocalSource) -> list[LocalLog]:
    """The logs that may contain offsets of the job."""
    return [
        log
        for log in source.logs
        if log.base_offset <= job.end_offset
        and (log.next_base_offset is None or log.next_base_offset > job.start_offset)
    ]


def _has_all(job: GatherJob, logs: list[LocalLog], on_walk: OnRead) -> bool:
    """True if these logs cover all offsets of the job without a gap."""
    following = job.start_offset
    for log in logs:
        if log.base_offset > following:
            return False
        end = log.next_base_offset
        following = _end(log, on_walk) if end is None else end
    return following > job.end_offset


def _end(log: LocalLog, on_walk: OnRead) -> int:
    """The offset after the last batch of an active segment."""
    end = log.base_offset
    with log.path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for _, header in _batches(log.path, file.fileno(), size, on_walk):
            end = header.last_offset + 1
    return end


def _open_at_base(job: GatherJob, manifest: bytes) -> tuple[OpenTransaction, ...] | None:
    """The transactions open at the base by the manifest; None if it has none recorded, or can't be
    parsed, such as one of a later version.
    """
    with suppress(CorruptData):
        return parse_manifest(manifest, source=str(job.segment_id)).open_at_base
    return None


def _not_as_told(job: GatherJob, manifest: bytes | None, transactions: bytes) -> str:
    """The reason why a transaction index is not the whole one of the damaged segment; empty if it
    may be.
    """
    if not transactions:
        return "their transaction indexes have no entry"
    if manifest is None:
        return ""
    told = parse_manifest(manifest, source=str(job.segment_id)).indexes.get(IndexType.TRANSACTION)
    if told is None or told.size == len(transactions):
        return ""
    return f"their transaction index has {len(transactions)} bytes, not {told.size}"


async def _local(job: GatherJob, source: LocalSource, on_read: OnRead) -> AsyncIterator[bytes]:
    """The bytes of the batches with the job's offsets, from all segments of a source."""
    on_walk = from_threads(on_read)
    for log in _over(job, source):
        with await asyncio.to_thread(log.path.open, "rb") as file:
            descriptor = file.fileno()
            start, end = await asyncio.to_thread(_span, job, log, descriptor, on_walk)
            for at in range(start, end, PIECE_BYTES):
                size = min(PIECE_BYTES, end - at)
                piece = await asyncio.to_thread(os.pread, descriptor, size, at)
                yield piece
                if len(piece) < size:
                    return  # the file was truncated meanwhile; the length will be wrong


def _span(job: GatherJob, log: LocalLog, descriptor: int, on_walk: OnRead) -> tuple[int, int]:
    """The positions [start, end) of the batches with the job's offsets in a log."""
    size = os.fstat(descriptor).st_size
    ends_within = log.next_base_offset is not None and log.next_base_offset <= job.end_offset + 1
    if log.base_offset >= job.start_offset and ends_within:
        return 0, size
    start: int | None = None
    for position, header in _batches(log.path, descriptor, size, on_walk):
        base_offset = header.base_offset
        if base_offset > job.end_offset:
            return (position if start is None else start), position
        if start is None and base_offset >= job.start_offset:
            start = position
    return (size if start is None else start), size


def _batches(
    path: Path, descriptor: int, size: int, on_walk: OnRead
) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of each batch of the file."""
    position = told = 0
    while position + HEADER_BYTES <= size:
        if position - told >= READ_TOLD_BYTES:
            on_walk(position - told)
            told = position
        data = os.pread(descriptor, HEADER_BYTES, position)
        header = parse_header(data, source=str(path), position=position)
        yield position, header
        position += header.size_bytes


async def _in_large_pieces(stream: AsyncIterator[bytes], on_read: OnRead) -> AsyncIterator[bytes]:
    """Join small pieces into ones of PIECE_BYTES or more, for fewer writes."""
    held = bytearray()
    async for piece in stream:
        on_read(len(piece))
        held += piece
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)
