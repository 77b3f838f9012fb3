"""A file or directory that is on the disk, whatever the power does."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """What a file holds, or the names in a directory, are durable when this returns. Blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
