"""Real stores for a whole test session: each is started when the first test asks for it.

No time a machine takes decides a test: Hypothesis has no deadline for an example. What is imported
and collected is no garbage: going through it again and again took a seventh of the CPU time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from rsm_backends.store_config import StoreConfig
from tests.late_accepts import close_late_accepts
from tests.real.localstack import LocalStackServer
from tests.real.minio import MinioServer

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

close_late_accepts()


def pytest_collection_finish() -> None:
    """Once for each process of the session."""
    gc.collect()
    gc.freeze()


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
