"""A store with its retries, and the pipeline's clock and chance; what it tells of uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafka_formats.errors import InvalidRequest, Refused
from pipeline import ambient
from rsm_backends.open_store import open_store
from rsm_backends.store import ObjectStore, UnfinishedUpload
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


async def told_uploads(store: ObjectStore, prefix: str) -> tuple[UnfinishedUpload, ...]:
    """Unfinished uploads below the prefix; none of a store that cannot tell, or does not let us
    ask: a right of its own in AWS.
    """
    try:
        return await store.uploads_below(prefix)
    except (InvalidRequest, Refused):
        return ()
