"""The owner of a hold directory: one process at a time, the only one that releases its links.

The directory's name has the Kafka cluster id, so the nodes of two Strandline clusters beside one
broker use the same one. `.<directory>.lock` beside it is locked while its owner runs, and contains
the id of the owner's Strandline cluster. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import Conflict, Refused

_OWNER_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Owned:
    """An owned directory: close `descriptor` to give it up. `before`: the Strandline cluster that
    owned it last; None if there was none.
    """

    descriptor: int
    before: str | None


def become_owner(path: Path, cluster_id: str) -> Owned:
    """Own the hold directory `path` until the process ends. Conflict, with what to do: a process of
    a different cluster owns it. Refused: a process of this cluster owns it, or a doctor command is
    reading the lock. Passes OSError.
    """
    descriptor = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _read(descriptor)
        if before != cluster_id:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, cluster_id.encode(), 0)
    except BlockingIOError:
        other = _read(descriptor)
        os.close(descriptor)
        if other == cluster_id:
            raise Refused(
                f"{path} is in use by another process of this Strandline cluster, or the doctor of "
                "a different cluster is checking it: start the node again"
            ) from None
        raise Conflict(why_not_owned(path, other), reason="IN_USE") from None
    except BaseException:
        os.close(descriptor)
        raise
    return Owned(descriptor, before)


def other_owner(path: Path, cluster_id: str) -> str | None:
    """The different Strandline cluster whose running node owns `path`; None if there is none.
    Passes OSError.
    """
    with _lock_file(path) as descriptor:
        owner = None if descriptor is None else _read(descriptor)
        if descriptor is None or owner == cluster_id:
            return None  # take no lock, even for an instant: this cluster's node may be starting
        return owner if _is_locked(descriptor) else None


def is_owned(path: Path) -> bool:
    """True if a process owns the hold directory `path`. Do not call it for a node's own directory:
    a node that starts at this instant would find it in use. Passes OSError.
    """
    with _lock_file(path) as descriptor:
        return descriptor is not None and _is_locked(descriptor)


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[int | None]:
    """The lock file of a hold directory, open for reading; None if it never had an owner."""
    try:
        descriptor = os.open(_lock_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """True if a process has locked the file; if none has, it is locked for reading until the
    descriptor is closed.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def why_not_owned(path: Path, other: str | None) -> str:
    """A sentence about a directory that another process owns, and what to do."""
    return (
        f"{path} is in use by a node of the Strandline cluster {other or '(not known)'}, so this "
        "node holds no segments there, and loses those that the broker deletes before they are "
        "copied: give each Strandline cluster beside this broker a directory of its own in "
        "hold.dirs, or stop the other node for good, and start this one again"
    )


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _read(descriptor: int) -> str | None:
    return os.pread(descriptor, _OWNER_BYTES_MAX, 0).decode(errors="replace") or None
