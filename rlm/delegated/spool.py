"""A bounded directory for the files of segments that a broker sends to a node that does not see its
disk.

A segment lies here from its first byte until its copy ended, in whatever way; what a dead process
left goes at the next start. Nothing is synced: a copy that is cut off begins anew.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.control.node_problem import NodeProblem, ProblemArea

T = TypeVar("T")

logger = logging.getLogger(__name__)

TOLD_FOR_S = 600.0
"""The time for which a refusal is a problem of the node, unless a segment was received since."""


class NoRoom(RetryLater):
    """The spool is too small, or its disk is full."""

    reason = "SPOOL"


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """`directory` is this node's alone: all of it goes at a start. `free_bytes_min` of its disk
    stay free, as far as can be known before the bytes come.
    """

    directory: Path
    bytes_max: int = 4 * 2**30
    copies_max: int = 2
    free_bytes_min: int = 2**30


@dataclass(slots=True)
class Spool:
    """The spool of a node. `refused` counts segments that there was no room for."""

    limits: SpoolLimits
    monotonic: Callable[[], float]
    refused: int = 0
    _taken: dict[Uuid, int] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _trouble: tuple[float, str] = (0.0, "")
    _lock: int | None = None

    @property
    def taken_bytes(self) -> int:
        """Bytes of the segments that are here, or coming."""
        return sum(self._taken.values())

    def own(self) -> None:
        """Take the directory until `close`, and remove what a process before left. Blocks.
        Conflict: another running process has it. Where it can't be locked or emptied, that is told.
        """
        directory = self.limits.directory
        try:
            directory.mkdir(parents=True, mode=0o700, exist_ok=True)
            _check_is_ours(directory)
            self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in directory.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                else:
                    left.unlink()
        except BlockingIOError:
            self.close()
            raise Conflict(
                f"{directory} is in use by another node, which may be of another cluster: give "
                "this one a directory of its own as spool.dir",
                reason="IN_USE",
            ) from None
        except OSError as error:
            logger.warning("%s can't be emptied: %s", directory, error)

    def close(self) -> None:
        """Let the directory go."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @asynccontextmanager
    async def place(self, id_: Uuid, size_bytes: int, name: str) -> AsyncIterator[Path]:
        """A directory `name` for one segment, removed at the end. Waits for its turn and for room
        in the bounds. NoRoom: there is none on the disk, or the segment is larger than the spool.
        """
        self._check_bound(size_bytes)  # it would wait for ever, and all others behind it
        async with self._turn:  # first come, first served
            while not self._fits(size_bytes):
                self._left.clear()
                await self._left.wait()
            assert id_ not in self._taken, "`BrokerCopies` takes one call a segment"
            self._taken[id_] = size_bytes
        home = self.limits.directory / str(id_)
        try:
            await self.check_room(size_bytes, promised_bytes=self.taken_bytes - size_bytes)
            with self.writing():
                await to_its_end(asyncio.to_thread((home / name).mkdir, 0o700, parents=True))
            yield home / name
        finally:
            try:
                await to_its_end(asyncio.to_thread(shutil.rmtree, home, ignore_errors=True))
            finally:
                del self._taken[id_]
                self._left.set()

    async def check_room(self, size_bytes: int, *, promised_bytes: int = 0) -> None:
        """NoRoom if such a segment can't be taken now, whatever else ends. `promised_bytes` are
        of the segments under way, written or not: the disk may be the metadata log's, too.
        """
        limits = self.limits
        self._check_bound(size_bytes)
        with self.writing():
            free_bytes = await to_its_end(asyncio.to_thread(_free_bytes, limits.directory))
        if free_bytes < size_bytes + promised_bytes + limits.free_bytes_min:
            raise self._no_room(
                f"{limits.directory} has {free_bytes} bytes free, others under way may take "
                f"{promised_bytes}, and a segment of {size_bytes} waits (spool.free_bytes_min "
                "stays free): make room on that disk, or lower spool.copies_max"
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of the disk into NoRoom, and tell of it."""
        try:
            yield
        except OSError as error:
            raise self._no_room(
                f"a segment's files can't be written to {self.limits.directory} "
                f"({error.strerror or error}): make room on that disk, or mend it"
            ) from error

    def works(self) -> None:
        """A segment was received whole."""
        self._trouble = 0.0, ""

    def problems(self) -> tuple[NodeProblem, ...]:
        """The last refusal, while it may still be true."""
        at_s, text = self._trouble
        if not text or self.monotonic() - at_s >= TOLD_FOR_S:
            return ()
        return (NodeProblem(ProblemArea.PLUGIN, "spool", text),)

    def _check_bound(self, size_bytes: int) -> None:
        if size_bytes > self.limits.bytes_max:
            raise self._no_room(
                f"a segment of {size_bytes} bytes is larger than spool.bytes_max "
                f"({self.limits.bytes_max}): raise it"
            )

    def _fits(self, size_bytes: int) -> bool:
        limits = self.limits
        few = len(self._taken) < limits.copies_max
        return few and self.taken_bytes + size_bytes <= limits.bytes_max

    def _no_room(self, text: str) -> NoRoom:
        self.refused += 1
        if text != self._trouble[1]:
            logger.warning("a segment of the broker is not received: %s", text)
        self._trouble = self.monotonic(), text
        return NoRoom(text)


def _check_is_ours(directory: Path) -> None:
    """Raise PermissionError for what somebody else may have put into a directory where everybody
    can, as /tmp: a link would have this node empty what it leads to, and an owner changes segments
    on their way. In other places only who may do so anyway has made it.
    """
    if not directory.parent.stat().st_mode & stat.S_IWOTH:
        return
    found = directory.lstat()
    is_ours = found.st_uid in (os.geteuid(), 0) and not found.st_mode & stat.S_IWOTH
    if not stat.S_ISDIR(found.st_mode) or not is_ours:
        raise PermissionError(
            errno.EPERM,
            f"it is a link, or another user's, and everybody may write to {directory.parent}: give "
            "this node a spool.dir that only its user can write to",
        )


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for a thread, also where this is cancelled: nothing of it comes behind what follows."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _free_bytes(directory: Path) -> int:
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    _check_is_ours(directory)  # again: what cleans /tmp may have removed it
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize
