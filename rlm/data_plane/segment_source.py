"""The open files of one sealed segment, which the broker may change or remove at any time.

A broker deletes segments at the head (local retention), truncates the tail (a diverged follower),
or moves the whole replica. Open descriptors keep the files; `check_unchanged` checks that they are
still part of the log. All calls block: callers use a thread.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Conflict, CorruptData, Refused, RetryLater, StrandlineError
from kafka_formats.leader_epoch_checkpoint import Epochs, entries_in_range
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from kafka_formats.properties import parse_partition_metadata
from rlm.data_plane.copy_job import CopyJob
from rlm.local_log.replica_directory import SMALL_FILE_BYTES_MAX, read_small
from rlmm.log.disk import LOST


class SegmentSource:
    """The open files. One read runs at a time; `close` waits for it, and may be called twice."""

    def __init__(self, job: CopyJob) -> None:
        """Open all files. Raises Conflict(SOURCE_CHANGED) if the segment was removed or changed."""
        self._job = job
        self.log_path = job.directory / segment_file_name(job.file_base_offset, LOG_SUFFIX)
        self._lock = threading.Lock()
        self._files: dict[Path, int] = {}
        try:
            self._log = self._open(self.log_path)
            for path in self._beside():
                try:
                    self._open(path)
                except FileNotFoundError:
                    continue  # optional: the copy rebuilds it or marks it as absent
            self._status = os.fstat(self._log)
            self._runs = self._open_runs()
            self.check_unchanged()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._translated(error) from error
            raise

    @property
    def size_bytes(self) -> int:
        if self._job.source is not None:
            return sum(run.size_bytes for run in self._job.source.runs)
        return self._status.st_size

    @property
    def modified_ms(self) -> int:
        """The time of the last write to the `.log`, in ms since the epoch."""
        return self._status.st_mtime_ns // 1_000_000

    def read_log_into(self, position: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `position` on. Raises Conflict(SOURCE_CHANGED) if the
        file was truncated, CorruptData if the disk lost the bytes.
        """
        filled = 0
        with self._lock:
            try:
                while filled < len(buffer):
                    descriptor, at, size = self._place(position + filled, len(buffer) - filled)
                    more = os.preadv(descriptor, [buffer[filled : filled + size]], at)
                    if not more:
                        break
                    filled += more
            except OSError as error:
                raise self._unread(error, self.log_path, position + filled) from error
        if filled < len(buffer):
            raise self._changed(f"it now ends at byte {position + filled} of {self.size_bytes}")

    def read_beside(self, path: Path) -> bytes | None:
        """A whole file beside the `.log`; None if it did not exist."""
        with self._lock:
            descriptor = self._files.get(path)
            if descriptor is None:
                return None
            try:
                size = os.fstat(descriptor).st_size
                if size > SMALL_FILE_BYTES_MAX:
                    raise CorruptData(f"{size} bytes are too many", source=str(path), position=0)
                return os.pread(descriptor, size, 0)
            except OSError as error:
                raise self._unread(error, path, 0) from error

    def index_path(self, suffix: str) -> Path:
        """The path of one of the segment's indexes."""
        return self._job.directory / segment_file_name(self._job.file_base_offset, suffix)

    def snapshot_path(self, offset: int) -> Path:
        """The path of the producer snapshot at `offset`."""
        return self._job.directory / segment_file_name(offset, SNAPSHOT_SUFFIX)

    def check_unchanged(self) -> None:
        """Raise Conflict(SOURCE_CHANGED) unless the opened files are still a sealed part of this
        log.
        """
        try:
            self._check_file()
            self._check_neighbours()
            self._check_lineage()
        except OSError as error:
            raise self._translated(error) from error

    def close(self) -> None:
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])

    def _beside(self) -> list[Path]:
        suffixes = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        job = self._job
        return [
            *(self.index_path(suffix) for suffix in suffixes),
            self.snapshot_path(job.start_offset),
            self.snapshot_path(job.next_base_offset),
        ]

    def _open_runs(self) -> list[tuple[int, int, int, int]]:
        """(start in the copy, descriptor, position in the file, size) of each run; empty if the
        `.log` is copied as it is.
        """
        runs, start = [], 0
        for run in () if self._job.source is None else self._job.source.runs:
            descriptor = self._files.get(run.path)
            if descriptor is None:
                descriptor = self._open(run.path)
            runs.append((start, descriptor, run.position, run.size_bytes))
            start += run.size_bytes
        return runs

    def _place(self, position: int, size: int) -> tuple[int, int, int]:
        """Descriptor, position and length of the bytes at `position` of the copy, up to the end of
        its run.
        """
        if not self._runs:
            return self._log, position, size
        start, descriptor, at, length = self._runs[
            bisect_right(self._runs, position, key=lambda run: run[0]) - 1
        ]
        into = position - start
        return descriptor, at + into, min(size, length - into)

    def _open(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._files[path] = descriptor
        return descriptor

    def _check_file(self) -> None:
        now = os.fstat(self._log)
        if (now.st_size, now.st_mtime_ns) != (self._status.st_size, self._status.st_mtime_ns):
            raise self._changed(f"it was modified (now {now.st_size} bytes)")

    def _check_neighbours(self) -> None:
        """Check that the segment still exists and ends where the next one begins, or that local
        retention removed it.

        Local retention removes the oldest segments, so after it all remaining segments begin at or
        after this one's end; the open descriptors keep its bytes.
        """
        job = self._job
        metadata = job.directory / PARTITION_METADATA_FILE
        topic_id = parse_partition_metadata(read_small(metadata), source=str(metadata))
        if topic_id != job.segment_id.partition.topic_id:
            raise self._changed(f"the topic was recreated (topic id {topic_id})")
        bases = {
            parsed[0]
            for name in os.listdir(job.directory)
            if (parsed := parse_segment_file_name(name)) and parsed[1] == LOG_SUFFIX
        }
        start, end = job.file_base_offset, job.file_next_base_offset
        if not bases or any(start < base < end for base in bases):
            raise self._changed("other segments are in its place")
        if start not in bases:
            if min(bases) < end:
                raise self._changed("it was removed, and older segments were not")
            return
        found = self.log_path.stat()
        if (found.st_dev, found.st_ino) != (self._status.st_dev, self._status.st_ino):
            raise self._changed("a different file has its name")
        if end not in bases:
            raise self._changed(f"no segment begins at offset {end} any more")

    def _check_lineage(self) -> None:
        path = self._job.directory / LEADER_EPOCH_CHECKPOINT_FILE
        current = leader_epoch_checkpoint.parse(read_small(path), source=str(path))
        job = self._job
        if not same_lineage(job.leader_epochs, current, job.start_offset, job.next_base_offset):
            raise self._changed("the leader epochs of its offsets changed after it was planned")

    def _changed(self, why: str) -> Conflict:
        return Conflict(f"{self.log_path} changed while it was copied: {why}", reason=CHANGED)

    def _unread(self, error: OSError, path: Path, position: int) -> StrandlineError:
        """The error of a failed read: CorruptData if the disk lost the bytes."""
        if error.errno in LOST:
            return CorruptData(str(error.strerror), source=str(path), position=position)
        return self._translated(error)

    def _translated(self, error: OSError) -> StrandlineError:
        where = error.filename or self.log_path
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return self._changed(f"{where} does not exist any more")
        if isinstance(error, PermissionError):
            return Refused(f"{where} can't be read: let the node's user read the broker's files")
        return RetryLater(f"{where} can't be read: {error.strerror}", retry_after_ms=10_000)


CHANGED = "SOURCE_CHANGED"
"""The `reason` of the Conflict for a source that changed while it was read."""


def same_lineage(planned: Epochs, current: Epochs, start: int, end: int) -> bool:
    """True if the offsets [start, end) still have the same leader epochs.

    Local retention and DeleteRecords remove the head of the broker's checkpoint. Offsets below its
    first entry are not compared: they can only have been removed, not replaced.
    """
    if not current:
        return False
    start = max(start, current[0].start_offset)
    if start >= end:
        return current[0].epoch >= planned[-1].epoch
    return entries_in_range(planned, start, end) == entries_in_range(current, start, end)
