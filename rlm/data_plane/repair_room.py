"""Room on this node's own disk for what a repair puts together: a disk that takes nothing is no
answer about a source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_formats.errors import RetryLater

RETRY_AFTER_MS = 60_000


class NoRoom(RetryLater):
    """The disk of this node takes no more; whatever a source has, this says nothing of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=RETRY_AFTER_MS)


def require_room(directory: Path, wanted_bytes: int, free_bytes_min: int) -> None:
    """NoRoom: `wanted_bytes` would not leave `free_bytes_min` free. The directory has to exist."""
    with writing_to(directory):
        space = os.statvfs(directory)
    free_bytes, needed = space.f_bavail * space.f_frsize, wanted_bytes + free_bytes_min
    if free_bytes < needed:
        raise NoRoom(
            f"{directory} has {free_bytes} bytes free; a repair of this segment takes {needed} "
            "(repair.free_bytes_min stays free): make room on that disk"
        )


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """What the disk says to writes in it, as NoRoom."""
    try:
        yield
    except OSError as error:
        raise NoRoom(
            f"what a repair puts together can't be written to {directory} "
            f"({error.strerror or error}): make room on that disk, or mend it"
        ) from error
