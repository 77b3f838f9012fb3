"""Keeps the output of Spark itself apart from the output of the job."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes started within the block write their standard error to `path`, also after it."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def new_log(name: str) -> Path:
    """An empty file for Spark's output in the system's temporary folder, readable by its owner."""
    handle, path = tempfile.mkstemp(prefix=f"strandline-{name}-", suffix=".log")
    os.close(handle)
    return Path(path)
