"""Where short-lived nodes keep their data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MEMORY_DISK = Path("/dev/shm")


@pytest.fixture
def many_worlds(tmp_path: Path) -> Iterator[Path]:
    """A place for hundreds of short-lived nodes: in memory where there is such a thing, since
    their thousands of fsyncs would prove nothing here.
    """
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY_DISK) as path:
        yield Path(path)
