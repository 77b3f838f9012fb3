"""Opens a store with retries and the pipeline's clocks and randomness; lists its uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafka_formats.errors import InvalidRequest, Refused
from pipeline.process import ambient
from rsm_backends.open_store import open_store
from rsm_backends.store import ObjectStore, UnfinishedUpload
from rsm_backends.store_config import StoreConfig


@asynccontextmanager
async def opened(config: StoreConfig) -> AsyncIterator[ObjectStore]:
    """The open store; keep it: making an S3 client takes some 20 ms of CPU, the first one 150."""
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
    """Unfinished uploads below the prefix; empty if the store cannot list them, or does not permit
    it: AWS has a separate right for that.
    """
    try:
        return await store.uploads_below(prefix)
    except (InvalidRequest, Refused):
        return ()
