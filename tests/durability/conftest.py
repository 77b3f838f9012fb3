"""A place for many short lives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.ground.shared_memory import shared_memory


@pytest.fixture
def home() -> Iterator[Path]:
    """A path nobody has made yet; in memory where there is such a file system.

    What a sync makes durable is decided by the tests' own medium, not by this one.
    """
    with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
        yield Path(folder) / "home"
