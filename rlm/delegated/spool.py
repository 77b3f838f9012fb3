"""A bounded directory for segment files that a broker sends to a node without access to its disk.

A segment's files stay here from their first byte to the end of its copy, whether it succeeds or
not; files that a dead process left are removed at the next start. They are not synced: an
interrupted copy begins anew.
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
    """`directory` belongs to this node alone: a start removes all its contents. `free_bytes_min` of
    its disk stay free, as far as can be known before the files arrive.
    """

    directory: Path
    bytes_max: int = 4 * 2**30
    copies_max: int = 2
    free_bytes_min: int = 2**30


@dataclass(slots=True)
class Spool:
    """The spool of a node. `refused` counts segments for which there was no room."""

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
        """Bytes of the segments that are here or being received."""
        return sum(self._taken.values())

    def own(self) -> None:
        """Lock the directory until `close`, and remove what an earlier process left. Blocks.
        Conflict: a different running process has locked it. If it can't be locked or emptied, only
        a warning is logged.
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
                f"{directory} is in use by a different node, perhaps of a different cluster: give "
                "this one a directory of its own as spool.dir",
                reason="IN_USE",
            ) from None
        except OSError as error:
            logger.warning("%s can't be emptied: %s", directory, error)

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @asynccontextmanager
    async def place(self, id_: Uuid, size_bytes: int, name: str) -> AsyncIterator[Path]:
        """A directory `name` for one segment, removed at the end. Waits for its turn, and until the
        spool's bounds allow it. NoRoom: the disk has no space for it, or the segment is larger than
        the spool.
        """
        self._check_bound(size_bytes)  # else it would wait for ever, and all others after it
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
        """Raise NoRoom if a segment of `size_bytes` can't be received now, whichever other segments
        end. `promised_bytes`: the sizes of the segments under way, written or not; the disk may be
        the metadata log's, too.
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
        """Turn errors of the disk into NoRoom, and report them as a problem."""
        try:
            yield
        except OSError as error:
            raise self._no_room(
                f"a segment's files can't be written to {self.limits.directory} "
                f"({error.strerror or error}): make room on that disk, or mend it"
            ) from error

    def works(self) -> None:
        """Clear the problem: a whole segment was received."""
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
    """Raise PermissionError for a directory that a different user may have made, in a parent that
    every user can write to, as /tmp: through a link this node would empty a different directory,
    and an owner could change segments. In other parents only permitted users can have made it.
    """
    if not directory.parent.stat().st_mode & stat.S_IWOTH:
        return
    found = directory.lstat()
    is_ours = found.st_uid in (os.geteuid(), 0) and not found.st_mode & stat.S_IWOTH
    if not stat.S_ISDIR(found.st_mode) or not is_ours:
        raise PermissionError(
            errno.EPERM,
            f"it is a link or a different user's, and every user may write to {directory.parent}: "
            "give this node a spool.dir that only its user can write to",
        )


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for a thread to end, also if this call is cancelled: later steps never overlap it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _free_bytes(directory: Path) -> int:
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    _check_is_ours(directory)  # again: a clean-up of /tmp may have removed it
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize
