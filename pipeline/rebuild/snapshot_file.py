"""Writes a rebuilt snapshot to a file: once, whole, and by one run at a time."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from kafka_formats.errors import Conflict, InvalidRequest
from pipeline.rebuild.comparing_disk import ComparingDisk, OtherBytes
from rlmm.log.disk import Disk, OsDisk
from rlmm.log.snapshot_files import SnapshotWriter, snapshot_file_name
from rlmm.metadata_log import SnapshotId
from rlmm.rows.snapshot_rows import to_proposals

EPOCH = 1
"""The epoch in the snapshot's name: the new quorum's own epochs begin above it."""
ROWS_AT_ONCE = 1_000

log = logging.getLogger(__name__)


def write_snapshot(
    folder: Path, end_offset: int, rows: Iterable[tuple[bytes, bytes]]
) -> tuple[Path, bool]:
    """Write these rows, which are in key order; returns the path, and True if the file existed. An
    existing file is not changed: InvalidRequest if it differs in any byte. InvalidRequest if the
    folder is not writable. Conflict if another run writes there. Errors of `rows` are passed on.
    """
    snapshot = SnapshotId(end_offset, EPOCH)
    path = folder / snapshot_file_name(snapshot)
    with _written_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _only_writer(folder):
        was_there = path.exists()
        try:
            _write(ComparingDisk(path) if was_there else OsDisk(), folder, snapshot, rows)
        except OtherBytes:
            raise InvalidRequest(
                f"{path} exists already, and the bucket's segments now give different bytes: name "
                "a new folder",
                field="--output",
            ) from None
    return path, was_there


def _write(
    disk: Disk, folder: Path, snapshot: SnapshotId, rows: Iterable[tuple[bytes, bytes]]
) -> None:
    with _written_to(folder):
        writer = SnapshotWriter(disk, folder, snapshot, last_contained_timestamp_ms=0, voters=())
    proposals = iter(to_proposals(rows))
    try:
        # Rows are read outside of `_written_to`: Spark's errors may be OSErrors, too.
        while part := list(islice(proposals, ROWS_AT_ONCE)):
            with _written_to(folder):
                writer.add(part)
        with _written_to(folder):
            writer.finish()
    except BaseException:
        writer.abandon()
        raise


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Locks the folder: two writers at once would remove each other's unfinished file, or finish
    it. The lock ends with its process.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a different rebuild writes to {folder}: wait for it, or name a different folder",
                reason="REBUILD_RUNS",
            ) from None
        except OSError:
            log.warning("%s has no locks: nothing else may write there", folder)
        yield
    finally:
        os.close(fd)


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"{folder} can't be written: {error.strerror}", field="--output"
        ) from None
