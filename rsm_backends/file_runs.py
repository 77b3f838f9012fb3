"""Reads many small objects of a filesystem store with as few system calls as possible.

Opening a file part by part from the root takes longer than reading a few kilobytes, so the folder
is opened once for neighbouring keys. Unusual cases are left to `blocking_reads.py`, which reports
errors and repeats those that may pass.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable
from contextlib import ExitStack, suppress
from itertools import groupby

from kafka_formats.errors import InvalidRequest, Refused
from rsm_backends.arguments import check_key
from rsm_backends.object_files import ObjectFiles
from rsm_backends.unlinked import OBJECT_FOR_READING


def read_runs(
    files: ObjectFiles, keys: Iterable[str], *, bytes_max: int
) -> Generator[bytes | None]:
    """The first `bytes_max` bytes of each key, in the order given, which should be by folder. None
    for a key that has to be read by `blocking_reads.py`.
    """
    for path, run in groupby(keys, key=lambda key: key.rpartition("/")[0]):
        with ExitStack() as stack:
            folder: int | None = None
            first = next(run)
            with suppress(OSError, InvalidRequest, Refused):
                check_key(first)
                folder = stack.enter_context(files.folders_to(first, create=False))[-1]
            name_at = len(path) + 1 if path else 0
            for key in (first, *run):
                yield None if folder is None else _read(folder, key[name_at:], bytes_max)


def _read(folder: int, name: str, bytes_max: int) -> bytes | None:
    try:
        fd = os.open(name, OBJECT_FOR_READING, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        size = min(status.st_size, bytes_max)
        data = os.read(fd, size) if stat.S_ISREG(status.st_mode) else b""
        return data if data and len(data) == size else None
    except OSError:
        return None
    finally:
        os.close(fd)
