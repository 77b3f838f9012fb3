"""Real stores for a whole test session: each is started when the first test asks for it. A place in
memory for tests with thousands of syncs.

No time a machine takes decides a test: Hypothesis has no deadline for an example. What is imported
and collected is no garbage: going through it again and again took a seventh of the CPU time of the
tests, and as much of their collection.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from rsm_backends.store_config import StoreConfig
from tests.late_accepts import close_late_accepts
from tests.real.localstack import LocalStackServer
from tests.real.minio import MinioServer

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

close_late_accepts()

MEMORY_DISK = Path("/dev/shm")
MARKERS_OF_MAKE = ("spark", "integration", "e2e", "soak")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The Makefile finds the tests of a marker by the files that name it."""
    lost = {
        f"{item.nodeid}: write pytest.mark.{marker.name} in {item.path.name}, or make never runs it"
        for item in items
        for marker in item.iter_markers()
        if marker.name in MARKERS_OF_MAKE and marker.name not in _markers_named_in(item.path)
    }
    if lost:
        raise pytest.UsageError(*sorted(lost))


@cache
def _markers_named_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"mark\.(\w+)\b", path.read_text()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Once for each process of the session."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def many_worlds(tmp_path: Path) -> Iterator[Path]:
    """A place for hundreds of short-lived nodes or restores: in memory where there is such a thing,
    since their thousands of fsyncs would prove nothing here.
    """
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY_DISK) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def minio_store_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreConfig]:
    """A bucket of a MinIO server, with all rights; use a prefix of your own in it."""
    with MinioServer(tmp_path_factory.mktemp("minio")) as server:
        yield server.store_config


@pytest.fixture(scope="session")
def localstack_store_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreConfig]:
    """A bucket of LocalStack's S3; use a prefix of your own in it."""
    with LocalStackServer(tmp_path_factory.mktemp("localstack")) as server:
        yield server.store_config
