"""The metadata log's partition directory: append durably, read, cut at either end.

One thread (the writer) appends and cuts; any other may read. Nothing here is asynchronous.

Invariant: `synced_end` never exceeds what a crash of the machine leaves readable.

The active segment's space is reserved up to its greatest size: a sync need not look for blocks
(docs/notes/quorum.md), and other files can't take them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import CorruptData, InternalError, NotFound, RetryLater
from kafka_formats.leader_epoch_checkpoint import Epochs, append_entry, epoch_for_offset
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, check_crc, parse_header
from rlmm.log.disk import AppendFile, Disk, replace_file
from rlmm.log.recovery import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_DIRECTORY,
    RecoveredLog,
    load_committed_end,
    recover,
    restart_log,
    store_committed_end,
    store_recovery_point,
)
from rlmm.log.segment_file import INDEX_INTERVAL_BYTES, SegmentFile, check_place
from rlmm.log.snapshot_files import (
    DAMAGED_SUFFIX,
    check_snapshot,
    list_snapshots,
    snapshot_file_name,
)
from rlmm.metadata_log import SnapshotId

DAMAGED_MAX = 3
"""Limit of the snapshots that were set aside and are kept: the newest ones."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch ready to be written, with the fields of its header."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A complete batch read back, its CRC checked; `source` and `position`: its file and place."""

    header: BatchHeader
    data: bytes
    source: str
    position: int


class LogDirectory:
    """See the module's text. `open` recovers first; the object is then ready to append."""

    def __init__(
        self,
        disk: Disk,
        metadata_directory: Path,
        recovered: RecoveredLog,
        *,
        segment_bytes_max: int,
    ) -> None:
        self._disk = disk
        self._metadata_directory = metadata_directory
        self.directory = metadata_directory / PARTITION_DIRECTORY
        self._segment_bytes_max = segment_bytes_max
        # Replaced, never changed in place, so that a reader sees one or the other.
        self._segments = recovered.segments
        self._epochs = recovered.epochs
        self._failure: str | None = None
        self._recovery_point_lock = threading.Lock()
        self._active: AppendFile | None = self._open_active(recovered.segments[-1])
        self.cut = recovered.cut
        self.synced_end = recovered.segments[-1].end_offset
        self.committed_end = self._stored_committed_end = load_committed_end(
            disk, metadata_directory
        )
        """The known committed end; the driver raises it."""

    @classmethod
    def open(
        cls, disk: Disk, metadata_directory: Path, *, view_flushed_end: int, segment_bytes_max: int
    ) -> LogDirectory:
        """Recover and open. CorruptData: see `recovery.recover`."""
        recovered = recover(disk, metadata_directory, view_flushed_end=view_flushed_end)
        return cls(disk, metadata_directory, recovered, segment_bytes_max=segment_bytes_max)

    @property
    def log_start_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """First offset not yet written, synced or not."""
        return self._segments[-1].end_offset

    @property
    def epochs(self) -> Epochs:
        return self._epochs

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch; 0 while there is none."""
        return self._epochs[-1].epoch if self._epochs else 0

    @property
    def failure(self) -> str | None:
        """The reason why the log refuses all calls; None while it works."""
        return self._failure

    @property
    def size_bytes(self) -> int:
        return self.bytes_from(0)

    def bytes_from(self, offset: int) -> int:
        """The size of the segments that have records at or above `offset`."""
        return sum(each.size_bytes for each in self._segments if each.end_offset > offset)

    def snapshots(self) -> tuple[SnapshotId, ...]:
        """Complete snapshots on disk, oldest first."""
        return list_snapshots(self._disk, self.directory)

    def append(self, batches: Sequence[EncodedBatch]) -> None:
        """Write the batches; a crash may lose them until `sync` returned.

        RetryLater: the disk failed, now or before. Then nothing is known about these batches, and
        this object refuses everything from then on; a sync is never repeated, because the kernel
        may have dropped the bytes and would report success.
        """
        with self._fatal_errors():
            self._append(batches)

    def sync(self) -> None:
        """Make everything written durable, with one sync. Errors: `append`."""
        with self._fatal_errors():
            end = self.log_end_offset
            self._sync_active()
            self.synced_end = end

    def truncate_to(self, end_offset: int) -> None:
        """Remove everything at and above `end_offset`, a batch border; durable on return.

        The recovery point is moved back first: a crash must not leave a log that is shorter than
        the recovery point. Then the newest segments are removed, one by one, so that there is never
        a hole.
        """
        with self._fatal_errors():
            if end_offset >= self.log_end_offset:
                return
            with self._recovery_point_lock:
                if end_offset < self.synced_end:
                    self.synced_end = end_offset
                    store_recovery_point(self._disk, self._metadata_directory, end_offset)
            self._handle().close()
            self._active = None
            while len(self._segments) > 1 and self._segments[-1].base_offset >= end_offset:
                *older, newest = self._segments
                self._segments = tuple(older)
                self._disk.remove(newest.path)
                self._disk.sync_directory(self.directory)
            last = self._segments[-1]
            position = self._position_of(last, end_offset)
            self._disk.truncate(last.path, position)
            last.cut(end_offset, position)
            self._active = self._open_active(last)
            self._epochs = leader_epoch_checkpoint.truncate_from_end(self._epochs, end_offset)
            self._store_epochs()

    def _position_of(self, segment: SegmentFile, offset: int) -> int:
        """The position in the file of the batch at `offset`, a batch border in `segment`."""
        next_offset, position = segment.border_before(offset)
        source = str(segment.path)
        data = self._disk.read(segment.path, position, segment.size_bytes - position)
        at = 0
        while next_offset < offset:
            header = parse_header(data, at, source=source, position=position + at)
            check_place(header, next_offset, source, position + at)
            check_crc(data, at, header, source=source, position=position + at)
            next_offset = header.last_offset + 1
            at += header.size_bytes
        if next_offset > offset:
            raise CorruptData(f"offset {offset} is not a batch border", source=source, position=at)
        return position + at

    def install_snapshot(self, snapshot: SnapshotId, part: Path) -> None:
        """Make the complete, checked file `part` the snapshot, and the whole log begin after it.

        Order: old log and new bytes durable, name durable, then the log is removed. A crash in
        between leaves an intact log that ends below its newest snapshot, or has the snapshot's last
        offset in another epoch; recovery goes on from there. The recovery point is below the
        snapshot's end before that has its name: so recovery knows an installed snapshot, whose log
        may be partly removed.
        """
        with self._fatal_errors():
            self._sync_active()
            with self._recovery_point_lock:
                if self.synced_end >= snapshot.end_offset:
                    self.synced_end = snapshot.end_offset - 1
                    store_recovery_point(self._disk, self._metadata_directory, self.synced_end)
            handle = self._disk.open_append(part)
            try:
                handle.sync()
            finally:
                handle.close()
            self._disk.rename(part, self.snapshot_path(snapshot))
            self._disk.sync_directory(self.directory)
            self._handle().close()
            self._active = None
            segment = restart_log(self._disk, self.directory, snapshot.end_offset, self._segments)
            self._segments = (segment,)
            self._epochs = ()
            self._active = self._open_active(segment)
            self.synced_end = snapshot.end_offset

    def _append(self, batches: Sequence[EncodedBatch]) -> None:
        pending = bytearray()
        for batch in batches:
            segment = self._segments[-1]
            if batch.base_offset != segment.end_offset:
                raise InternalError(
                    f"batch at {batch.base_offset} appended where {segment.end_offset} is next"
                )
            if batch.epoch != (self._epochs[-1].epoch if self._epochs else -1):
                self._start_epoch(batch.epoch, batch.base_offset)
            size = len(batch.data)
            if segment.size_bytes and segment.size_bytes + size > self._segment_bytes_max:
                self._write(pending)
                pending = bytearray()
                segment = self._roll()
            pending += batch.data
            segment.note(batch.base_offset, batch.last_offset, size)
        self._write(pending)

    def _open_active(self, segment: SegmentFile) -> AppendFile:
        handle = self._disk.open_append(segment.path)
        handle.reserve(self._segment_bytes_max)
        return handle

    def _write(self, data: bytearray) -> None:
        if data:
            self._handle().append(bytes(data))

    def _handle(self) -> AppendFile:
        if self._active is None:
            raise RetryLater("the metadata log is closed; the node is shutting down")
        return self._active

    def _sync_active(self) -> None:
        self._handle().sync()

    def _roll(self) -> SegmentFile:
        """Start the next segment: first make the old one durable, then the new one's name."""
        self._sync_active()
        self._handle().close()
        offset = self.log_end_offset
        segment = SegmentFile(offset, self.directory / segment_file_name(offset, LOG_SUFFIX))
        self._active = self._open_active(segment)
        self._disk.sync_directory(self.directory)
        self._segments = (*self._segments, segment)
        return segment

    def _start_epoch(self, epoch: int, start_offset: int) -> None:
        """Add an epoch to the checkpoint, before its first batch is in the log."""
        self._epochs = append_entry(self._epochs, epoch, start_offset)
        self._store_epochs()

    def _store_epochs(self) -> None:
        data = leader_epoch_checkpoint.encode(self._epochs)
        replace_file(self._disk, self.directory / LEADER_EPOCH_CHECKPOINT, data)

    def store_recovery_point(self) -> int:
        """Store the durable end (`synced_end`), then `committed_end`. One thread at a time."""
        with self._fatal_errors(), self._recovery_point_lock:
            committed = self.committed_end
            end = self.synced_end
            store_recovery_point(self._disk, self._metadata_directory, end)
            if (committed := min(committed, end)) > self._stored_committed_end:
                store_committed_end(self._disk, self._metadata_directory, committed)
                self._stored_committed_end = committed
            return end

    def read(self, from_offset: int, end_offset: int, *, bytes_max: int) -> tuple[StoredBatch, ...]:
        """Whole batches, from the one that holds `from_offset` to below `end_offset`.

        About `bytes_max` bytes, at least one batch unless that ends above. NotFound: below the log
        start. CorruptData: the stored bytes fail their check, or are other batches.
        """
        if from_offset >= end_offset:
            return ()
        segments = self._segments
        at = bisect_right(segments, from_offset, key=lambda segment: segment.base_offset) - 1
        if at < 0:
            raise NotFound(
                f"offset {from_offset} is below the metadata log's start "
                f"{segments[0].base_offset}: install a snapshot first"
            )
        segment = segments[at]
        try:
            found = self._batches(segment, bytes_max, from_offset, end_offset)
        except FileNotFoundError as error:
            raise NotFound(
                f"offset {from_offset} was cut from the metadata log: install a snapshot first"
            ) from error
        # Looked up after reading: the writer stores an epoch here before it appends.
        epochs = self._epochs
        for batch in found:
            _check_epoch(batch, epochs)
        return found

    def border_from(self, offset: int) -> int:
        """`offset`, or the end of the batch that it cuts in two. Errors: `read`."""
        if not self.log_start_offset < offset < self.log_end_offset:
            return offset
        holding = self.read(offset - 1, self.log_end_offset, bytes_max=HEADER_BYTES)
        return holding[0].header.last_offset + 1

    def _batches(
        self, segment: SegmentFile, bytes_max: int, from_offset: int, end_offset: int
    ) -> tuple[StoredBatch, ...]:
        """Offsets and lengths lie outside the CRC: each batch must begin where the last ended.

        Batches at or above `end_offset` are not read: the writer may be changing them.
        """
        path, source = segment.path, str(segment.path)
        next_offset, start = segment.border_before(from_offset)
        # From an index entry to `from_offset` is less than the index interval, so a read of this
        # length always reaches the wanted batch's header.
        data = self._disk.read(path, start, max(bytes_max, INDEX_INTERVAL_BYTES + HEADER_BYTES))
        found: list[StoredBatch] = []
        at = size = 0
        while len(data) - at >= HEADER_BYTES:
            if found and (next_offset >= end_offset or size >= bytes_max):
                break
            header = parse_header(data, at, source=source, position=start + at)
            check_place(header, next_offset, source, start + at)
            next_offset = header.last_offset + 1
            if found and next_offset > end_offset:
                break
            if len(data) - at < header.size_bytes:
                if found:
                    break
                data, start, at = self._read_one(path, start + at, header), start + at, 0
            if header.last_offset >= from_offset:
                check_crc(data, at, header, source=source, position=start + at)
                if next_offset > end_offset:
                    return ()
                batch = data[at : at + header.size_bytes]
                found.append(StoredBatch(header, batch, source, start + at))
                size += header.size_bytes
            at += header.size_bytes
        if not found:
            raise CorruptData(
                f"no batch holds offset {from_offset}, and the log reaches {end_offset}",
                source=source,
                position=start + at,
            )
        return tuple(found)

    def _read_one(self, path: Path, position: int, header: BatchHeader) -> bytes:
        data = self._disk.read(path, position, header.size_bytes)
        if len(data) < header.size_bytes:
            raise CorruptData("the batch is cut off", source=str(path), position=position)
        return data

    def cut_start(self, up_to_offset: int, *, keep_bytes: int) -> None:
        """Delete oldest segments wholly below `up_to_offset`, as long as `keep_bytes` stay.

        The active segment stays. A snapshot must cover the rest, and the view have flushed it. One
        at a time, each durable: a crash never leaves a hole.
        """
        with self._fatal_errors():
            start = self.log_start_offset
            while (
                len(self._segments) > 1
                and self._segments[0].end_offset <= up_to_offset
                and self.size_bytes - self._segments[0].size_bytes >= keep_bytes
            ):
                oldest, *rest = self._segments
                self._segments = tuple(rest)
                self._disk.remove(oldest.path)
                self._disk.sync_directory(self.directory)
            if self.log_start_offset > start:
                self._epochs = leader_epoch_checkpoint.truncate_from_start(
                    self._epochs, self.log_start_offset
                )
                self._store_epochs()

    def remove_old_snapshots(self, *, keep: int, held: Collection[SnapshotId] = ()) -> None:
        """Delete all but the newest `keep` snapshots (at least one stays), those `held`, and the
        bootstrap one, which names the first voters: a data directory does not open without it.

        Not synced: one that comes back after a crash is removed with the next snapshot.
        """
        taken = [snapshot for snapshot in self.snapshots() if snapshot.end_offset > 0]
        for snapshot in taken[: -max(keep, 1)]:
            if snapshot not in held:
                self._disk.remove(self.directory / snapshot_file_name(snapshot))

    def set_aside(self, snapshot: SnapshotId) -> bool:
        """Rename a snapshot that can't be read; durable on return. False: the log needs it.

        It does if it starts above 0 and no other whole snapshot covers its start. The ends that
        only the name told are stored first. In the writer's thread: no cut may rely on this
        snapshot meanwhile.
        """
        if snapshot not in self.snapshots():
            return True
        if not self._goes_on_without(snapshot):
            return False
        with self._fatal_errors():
            if self.committed_end < snapshot.end_offset:
                self.committed_end = snapshot.end_offset
            self.store_recovery_point()
            path = self.snapshot_path(snapshot)
            self._disk.rename(path, path.with_name(path.name + DAMAGED_SUFFIX))
            for name in self.damaged_snapshots()[:-DAMAGED_MAX]:
                self._disk.remove(self.directory / name)
            self._disk.sync_directory(self.directory)
        return True

    def _goes_on_without(self, snapshot: SnapshotId) -> bool:
        """True if the log does not need the snapshot: it starts at 0, or a different, intact
        snapshot covers its start; the log itself is complete from there on.
        """
        if snapshot.end_offset == 0:
            return False  # the data directory does not open without it
        start = self.log_start_offset
        others = (each for each in reversed(self.snapshots()) if each != snapshot)
        return start == 0 or any(self._is_whole(each) for each in others if each[0] >= start)

    def _is_whole(self, snapshot: SnapshotId) -> bool:
        try:
            check_snapshot(self._disk, self.snapshot_path(snapshot))
        except (OSError, CorruptData):
            return False
        return True

    def damaged_snapshots(self) -> tuple[str, ...]:
        """Names of the files that were set aside, oldest snapshot first."""
        names = self._disk.list_names(self.directory)
        return tuple(name for name in names if name.endswith(DAMAGED_SUFFIX))

    def snapshot_path(self, snapshot: SnapshotId) -> Path:
        return self.directory / snapshot_file_name(snapshot)

    def close(self) -> None:
        """Close the file. Acknowledged batches are durable already. Idempotent."""
        handle, self._active = self._active, None
        if handle is not None:
            handle.close()

    @contextmanager
    def _fatal_errors(self) -> Iterator[None]:
        """Raise if the log has failed; any failure of the disk is final."""
        if self._failure is not None:
            raise RetryLater(self._failure)
        try:
            yield
        except OSError as error:
            self._failure = (
                f"the metadata log in {self.directory} stopped: {error}. Records being written may "
                "or may not be there. Check the disk and its free space, then restart the node"
            )
            raise RetryLater(self._failure) from error


def _check_epoch(batch: StoredBatch, epochs: Epochs) -> None:
    """Raise CorruptData unless the batch has its epoch, which the CRC does not cover. The epoch is
    unknown, and not checked, if the log's start was cut meanwhile.
    """
    header = batch.header
    wanted = epoch_for_offset(epochs, header.base_offset)
    if wanted not in (None, header.partition_leader_epoch):
        raise CorruptData(
            f"the batch at offset {header.base_offset} has epoch {header.partition_leader_epoch} "
            f"on the disk, but was written in epoch {wanted}",
            source=batch.source,
            position=batch.position,
        )
