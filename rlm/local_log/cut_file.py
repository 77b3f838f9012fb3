"""Copies the head of a held file, up to the last batch that is surely committed.

The file itself stays as it is: it may have other links, a second cluster's or, for a minute, the
broker's own under another name. Everything here blocks.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kafka_formats import transaction_index
from kafka_formats.errors import CorruptData
from kafka_formats.log_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from rlm.local_log.batch_headers import has_abort
from rlm.local_log.replica_directory import read_small
from rlmm.log.disk import OsDisk, replace_file

CHUNK_BYTES = 64 << 20


def copy_head(source: Path, target: Path, size_bytes: int) -> None:
    """Copy the first bytes of a file, with its modification time; on return the content is durable,
    the name is not. OSError, also if the disk has less than twice the room: the broker needs some.
    """
    space = os.statvfs(target.parent)
    if space.f_bavail * space.f_frsize < 2 * size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
    with source.open("rb") as read, target.open("wb") as written:
        left = size_bytes
        while left > 0:
            taken = os.sendfile(written.fileno(), read.fileno(), None, min(left, CHUNK_BYTES))
            if taken == 0:
                raise OSError(errno.EIO, "the file ends too early", str(source))
            left -= taken
        os.fsync(written.fileno())
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def cut_beside(log: Path, end: int) -> None:
    """Make the indexes beside a `.log` that was cut fit its end (exclusive); may be repeated. The
    offset and time indexes are removed, since the copy rebuilds them; so is a damaged transaction
    index. They are links: the broker's own files stay. Passes OSError.
    """
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        log.with_suffix(suffix).unlink(missing_ok=True)
    path = log.with_suffix(TRANSACTION_INDEX_SUFFIX)
    try:
        entries = transaction_index.parse(read_small(path), source=str(path))
    except FileNotFoundError:
        return
    except CorruptData:
        path.unlink()
        return
    left = tuple(each for each in entries if each.last_offset < end)
    if not left:
        path.unlink()
    elif left != entries:  # in one step: without an index a copy may not know what was aborted
        replace_file(OsDisk(), path, transaction_index.encode(left))


def mark_aborts(log: Path) -> None:
    """Put a placeholder for the transaction index beside a `.log` that has abort markers and no
    such index: the broker made it after the links, or it was damaged. The placeholder is not empty,
    so the segment counts as one with aborted transactions, and not valid, so its copy builds the
    index from the batches. CorruptData; OSError.
    """
    path = log.with_suffix(TRANSACTION_INDEX_SUFFIX)
    if not path.exists() and has_abort(log):
        replace_file(OsDisk(), path, b"\0")
