"""Opens the store of a configuration: chooses the backend and puts retries around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TypedDict, Unpack

from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.deferred_store import DeferredStore, in_time
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.memory import MemoryStore
from rsm_backends.retrying import RetryingStore, RetryPolicy
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig

__all__ = ["StoreConfig", "open_all", "open_store"]


class StoreSurroundings(TypedDict):
    """Clocks and randomness of a store: seconds of a sleep and of a monotonic clock, a fraction
    from 0 to 1, and Unix time in ms.
    """

    sleep: Callable[[float], Awaitable[None]]
    monotonic: Callable[[], float]
    random_fraction: Callable[[], float]
    now_ms: Callable[[], int]


async def open_store(config: StoreConfig, **around: Unpack[StoreSurroundings]) -> ObjectStore:
    """Open the store of `config`; the caller closes it.

    Sends no request to S3 yet. A filesystem store's folder must exist: if it is missing, its disk
    may not be mounted. RetryLater: its mount hangs. Two opened memory stores are independent.
    """
    opening = asyncio.ensure_future(_open(config, **around))
    try:
        return await _in_time(config, opening)
    except BaseException:
        opening.cancel()
        raise


async def _in_time(config: StoreConfig, opening: asyncio.Future[ObjectStore]) -> ObjectStore:
    """Wait with a deadline for a folder only: opening any other store sends no request, but may
    have to import much.
    """
    return await (in_time(config.name, opening) if config.kind == "filesystem" else opening)


async def _open(config: StoreConfig, **around: Unpack[StoreSurroundings]) -> ObjectStore:
    policy = RetryPolicy(attempts_max=config.attempts_max, deadline_s=config.deadline_s)
    return RetryingStore(
        await _open_backend(config, around["now_ms"]),
        policy,
        sleep=around["sleep"],
        random_fraction=around["random_fraction"],
        monotonic=around["monotonic"],
    )


async def open_all(
    configs: Mapping[str, StoreConfig],
    *,
    needed: Collection[str] = (),
    **around: Unpack[StoreSurroundings],
) -> dict[str, ObjectStore]:
    """Open the stores of one node; the caller closes them.

    A store that cannot be opened now becomes a `DeferredStore`. Its error is raised instead if the
    store is `needed`, or if no store can be opened; except RetryLater, since a mount that hangs or
    is dead is like a store that does not answer.
    """
    opened: dict[str, ObjectStore] = {}
    errors: list[StrandlineError] = []
    async with AsyncExitStack() as undo:
        begun = {}
        for name, config in configs.items():
            open_it = partial(_open, config, **around)
            # All at once: several that hang take no longer than one.
            attempt = asyncio.ensure_future(open_it())
            begun[name] = attempt, DeferredStore(name, open_it, attempt)
            undo.push_async_callback(begun[name][1].close)
        for name, (attempt, deferred) in begun.items():
            try:
                opened[name] = await _in_time(configs[name], attempt)
            except RetryLater:
                opened[name] = deferred
            except StrandlineError as error:
                if name in needed:
                    raise
                errors.append(error)
                opened[name] = deferred
        if errors and len(errors) == len(configs):
            raise errors[0]
        undo.pop_all()
    return opened


async def _open_backend(config: StoreConfig, now_ms: Callable[[], int]) -> ObjectStore:
    if config.kind == "s3":
        # Imported only when used: importing aiobotocore takes a third of a second.
        from rsm_backends.s3 import S3Store

        return await S3Store.open(config)
    if config.kind == "filesystem":
        assert config.path is not None, "StoreConfig checks this"
        return await FilesystemStore.open(config.path)
    return MemoryStore(now_ms)
