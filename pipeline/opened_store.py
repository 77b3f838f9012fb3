"""A store with its retries, and the pipeline's clock and chance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipeline import ambient
from rsm_backends.open_store import open_store
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig


@asynccontextmanager
async def opened(config: StoreConfig) -> AsyncIterator[ObjectStore]:
    """The store; a client of S3 takes some 20 ms of CPU to make, the first one 150, so keep it."""
    store = await open_store(
        config,
        sleep=ambient.sleep,
        monotonic=ambient.monotonic,
        random_fraction=ambient.random_fraction,
        now_ms=ambient.now_ms,
    )
    try:
        yield store
    finally:
        await store.close()
