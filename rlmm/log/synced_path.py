"""Durable files and directories."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a directory, durable. Blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
