"""Where fetched tools live, and what happens when a toolchain to fetch them is missing.

A machine without the toolchain skips the test with a line that says so. With
STRANDLINE_REQUIRE_TOOLS=1 (set by .ci/run) the skip is a failure, so that a green run means that
everything ran.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def tools_dir() -> Path:
    """The cache for fetched tools: STRANDLINE_TOOLS_DIR, or ~/.cache/strandline-tools."""
    configured = os.environ.get("STRANDLINE_TOOLS_DIR")
    path = Path(configured) if configured else Path.home() / ".cache" / "strandline-tools"
    path.mkdir(parents=True, exist_ok=True)
    return path


def missing(what: str) -> NoReturn:
    """Skip (or, where tools are required, fail) the test that needs `what`."""
    message = f"needs {what}, which this machine does not have"
    if os.environ.get("STRANDLINE_REQUIRE_TOOLS") == "1":
        pytest.fail(message)
    pytest.skip(message)


def require_program(name: str) -> str:
    """The path of a program of the machine's toolchain, or `missing`."""
    path = shutil.which(name)
    if path is None:
        missing(f"the program {name!r}")
    return path


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold a lock in the tools folder, so that parallel test runs fetch a tool once."""
    with (tools_dir() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
