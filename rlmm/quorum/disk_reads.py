"""Reads from the disk for other nodes, in the reader's thread."""

from __future__ import annotations

from kafka_formats.errors import CorruptData
from rlmm.log.disk import LOST, Disk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.snapshot_files import check_snapshot
from rlmm.metadata_log import SnapshotId
from rlmm.raft.messages import LogRead, SnapshotRead

CHECKED_MAX = 16
"""Snapshots remembered as checked; a node keeps few at once."""


def is_damage(error: Exception) -> bool:
    """True if another read would fail, too: not for a missing file or too many open ones."""
    return isinstance(error, CorruptData) or (isinstance(error, OSError) and error.errno in LOST)


class DiskReads:
    """The reads of one thread. CorruptData: the stored bytes are not those written."""

    def __init__(self, directory: LogDirectory, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._checked: set[SnapshotId] = set()

    def log(self, read: LogRead) -> bytes:
        """Whole batches."""
        batches = self._directory.read(read.from_offset, read.end_offset, bytes_max=read.bytes_max)
        return b"".join(batch.data for batch in batches)

    def snapshot(self, read: SnapshotRead) -> bytes:
        """A piece. Before the first the whole file is checked, so that no damage is sent.

        The check may outlast a request, which then comes again, and other nodes may be anywhere in
        the same file: it counts until one of them has the last piece.
        """
        snapshot = read.snapshot
        path = self._directory.snapshot_path(snapshot)
        if read.position == 0 and snapshot not in self._checked:
            check_snapshot(self._disk, path)
            if len(self._checked) >= CHECKED_MAX:
                self._checked.clear()
            self._checked.add(snapshot)
        data = self._disk.read(path, read.position, read.bytes_max)
        if read.position + len(data) >= self._disk.size(path):
            self._checked.discard(snapshot)
        return data
