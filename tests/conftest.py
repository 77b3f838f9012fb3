"""Real stores for a whole test session: each is started when the first test asks for it. A
directory for each test, in memory where that will do.

No time a machine takes decides a test: Hypothesis has no deadline for an example. What is imported
and collected is no garbage: going through it again and again took a seventh of the CPU time of the
tests, and as much of their collection.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from rlmm.log.disk import OsAppendFile
from rsm_backends.store_config import StoreConfig
from sim.ground.shared_memory import shared_memory
from tests.late_accepts import close_late_accepts
from tests.markers import markers_left_out, markers_of_all
from tests.real.localstack import LocalStackServer
from tests.real.minio import MinioServer

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

close_late_accepts()

# httpx tries to import it at each request to an application in this process, and Python looks
# through all directories for a module that is not there: a tenth of such a request's CPU time.
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]

HERE = Path(__file__).parent
IN_MEMORY = ("api/", "rlm/", "rlmm/", "pipeline/restore/test_killed_log_directories.py")
ON_DISK = ("rlmm/log/", "rlm/local_log/", "rlm/worker/")
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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose tests all have a marker that `-m` rules out is not even imported."""
    left_out = markers_left_out(config.option.markexpr)
    if not left_out or not collection_path.name.startswith("test_"):
        return None
    return bool(left_out & markers_of_all(collection_path.read_text())) or None


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
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of the test's own; in memory, where that has room, for tests of what a node
    decides. Its fsyncs and the space that it reserves prove nothing there, and were a quarter of
    the CPU time and most of the waiting.
    """
    memory = shared_memory() if _may_be_in_memory(request.node) else None
    if memory is None:
        yield request.getfixturevalue("tmp_path")
        return
    with (
        TemporaryDirectory(dir=memory, prefix="strandline-test-") as path,
        pytest.MonkeyPatch.context() as patched,
    ):
        # Reserving there clears 16 MiB, for each log again.
        patched.setattr(OsAppendFile, "reserve", lambda *_: None)
        yield Path(path)


def _may_be_in_memory(test: pytest.Item) -> bool:
    path = test.path.relative_to(HERE).as_posix()
    return (
        path.startswith(IN_MEMORY)
        and not path.startswith(ON_DISK)
        and not any(test.get_closest_marker(name) for name in MARKERS_OF_MAKE)
    )


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
