"""The file system in memory, for files of which nothing has to reach a disk."""

from __future__ import annotations

import shutil
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
FREE_BYTES_MIN = 1 << 30
"""Worlds and tests leave this to everything else; a container often has 64 MiB in all."""


def shared_memory(place: Path = SHARED_MEMORY) -> Path | None:
    """The directory of shared memory; None where there is no such file system, or not enough room:
    the usual place for temporary files then.
    """
    try:
        return place if shutil.disk_usage(place).free >= FREE_BYTES_MIN else None
    except OSError:
        return None
