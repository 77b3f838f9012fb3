"""Room on this node's disk for a repair: a full disk must not count as an answer about a source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_formats.errors import RetryLater

RETRY_AFTER_MS = 60_000


class NoRoom(RetryLater):
    """This node's disk is full; this tells nothing about a source."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=RETRY_AFTER_MS)


def require_room(directory: Path, wanted_bytes: int, free_bytes_min: int) -> None:
    """NoRoom if `wanted_bytes` would leave less than `free_bytes_min`. The directory must exist."""
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
    """Turn errors of writes in the directory into NoRoom."""
    try:
        yield
    except OSError as error:
        raise NoRoom(
            f"the files of a repair can't be written to {directory} "
            f"({error.strerror or error}): make room on that disk, or mend it"
        ) from error
