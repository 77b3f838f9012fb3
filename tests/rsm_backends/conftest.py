"""Stores for the tests of this package."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from rsm_backends.store_config import StoreConfig
from tests.real.s3_admin import make_bucket


@pytest.fixture(scope="session")
def moto_store_config() -> Iterator[StoreConfig]:
    """A bucket of moto's S3 server, in a thread of this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    config = StoreConfig(
        name="moto",
        kind="s3",
        bucket="strandline-test",
        endpoint_url=f"http://{host}:{port}",
        access_key_id="test",
        secret_access_key="test",
        addressing_style="path",
    )
    make_bucket(config)
    yield config
    server.stop()
