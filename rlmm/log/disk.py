"""The few disk operations that all durable writes here consist of.

They are behind a port for one reason: SIGKILL keeps the page cache and so proves nothing about
fsync. Tests use a disk that drops unsynced writes. A crash may lose:

- bytes appended since the last `sync` of their file, in any order;
- creations, renames and removals since the last `sync_directory` of their directory;
- nothing else.

All operations block: call them from an executor thread, or before the event loop matters. An
`OSError` is passed on unchanged; the layer above decides what it means.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Protocol

TEMPORARY_SUFFIX = ".tmp"

LOST = (errno.EIO, errno.EUCLEAN)
"""Errors of a read whose bytes the disk or the file system has lost."""

_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of fallocate(2), which `os.posix_fallocate` lacks."""


class AppendFile(Protocol):
    """A file open for appending, by one writer."""

    def reserve(self, size_bytes: int) -> None:
        """Reserve disk space up to a length of `size_bytes`; length and bytes do not change. A
        hint: a file system that can't, or is full, ignores it.
        """

    def append(self, data: bytes) -> None:
        """Add all of `data` at the end. Not durable before `sync` returns."""

    def sync(self) -> None:
        """Make all appended bytes and the file's length durable.

        After an OSError the state of the bytes is unknown: the kernel may have dropped them, and
        the next call would wrongly succeed. Never call it again on that file.
        """

    def close(self) -> None:
        """Close without a sync. Idempotent."""


class Disk(Protocol):
    """Files and directories of one mount."""

    def list_names(self, directory: Path) -> tuple[str, ...]:
        """Names in `directory`, sorted; none if the directory does not exist."""

    def make_directory(self, path: Path) -> None:
        """Create `path` and missing parents; fine if it is there. Durable on return."""

    def size(self, path: Path) -> int:
        """Length in bytes. FileNotFoundError: the file does not exist."""

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        """At most `length` bytes from `position` (None: to the end); short only at the end."""

    def open_append(self, path: Path) -> AppendFile:
        """Open for appending; creates a missing file."""

    def truncate(self, path: Path, size: int) -> None:
        """Cut the file to `size` bytes. Durable on return."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename `old` to `new`, replacing it atomically. Durable after `sync_directory`."""

    def remove(self, path: Path) -> None:
        """Remove the file; fine if it is gone. Durable after `sync_directory`."""

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in `path` durable."""


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a directory, durable. Blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_files(disk: Disk, directory: Path, *, suffix: str) -> None:
    """Remove left-overs by the end of their names. Their absence need not be durable."""
    for name in disk.list_names(directory):
        if name.endswith(suffix):
            disk.remove(directory / name)


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Write a whole small file so that a crash leaves the old content or the new, never a mix:
    bytes durable under a temporary name, rename, name durable.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    disk.remove(temporary)
    handle = disk.open_append(temporary)
    try:
        handle.append(data)
        handle.sync()
    finally:
        handle.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


class OsAppendFile:
    """An `AppendFile` on a file descriptor."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o640)

    def reserve(self, size_bytes: int) -> None:
        # Not with zeros, which recovery and Kafka's tools would read.
        if sys.platform == "linux":
            start, length = ctypes.c_long(0), ctypes.c_long(size_bytes)
            ctypes.CDLL(None).fallocate(self._descriptor, _KEEP_SIZE, start, length)

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        # fdatasync also writes the length, which is all the metadata that reading needs.
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsDisk:
    """The operating system's file system."""

    def list_names(self, directory: Path) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(directory)))
        except FileNotFoundError:
            return ()

    def make_directory(self, path: Path) -> None:
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir(mode=0o750, exist_ok=True)
        self.sync_directory(path.parent)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        with path.open("rb") as handle:
            handle.seek(position)
            return handle.read(-1 if length is None else length)

    def open_append(self, path: Path) -> AppendFile:
        return OsAppendFile(path)

    def truncate(self, path: Path, size: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        sync_path(path)
