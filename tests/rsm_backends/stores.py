"""How tests make stores: with a clock that counts, waits that do not wait, and seeded chance."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

from rsm_backends.memory import MemoryStore
from rsm_backends.open_store import open_store
from rsm_backends.retrying import RetryingStore, RetryPolicy
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig


async def no_wait(seconds: float) -> None:
    """Sleep for no time."""
    assert seconds >= 0


def clock_ms() -> Callable[[], int]:
    """A clock that moves on by a second at each look."""
    ticks = count(1_700_000_000_000, 1000)
    return lambda: next(ticks)


def memory_store() -> MemoryStore:
    """An empty store."""
    return MemoryStore(clock_ms())


def retrying(store: ObjectStore, *, attempts_max: int = 8, seed: int = 1) -> RetryingStore:
    """Retries without waits."""
    return RetryingStore(
        store,
        RetryPolicy(attempts_max=attempts_max),
        sleep=no_wait,
        random_fraction=random.Random(seed).random,
        monotonic=lambda: 0.0,
    )


@asynccontextmanager
async def opened(config: StoreConfig) -> AsyncIterator[ObjectStore]:
    """A store as production opens it, apart from the waits; closed at the end."""
    store = await open_store(
        config,
        sleep=no_wait,
        monotonic=lambda: 0.0,
        random_fraction=random.Random(1).random,
        now_ms=clock_ms(),
    )
    try:
        yield store
    finally:
        await store.close()
