"""Stores as plain calls, for tasks and for the driver: each opens its own and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from kafka_formats.errors import InvalidRequest, RetryLater
from pipeline import ambient
from pipeline.listing.key_ranges import KeyRange, marks_of_folders, ranges_between
from rsm_backends.open_store import open_store
from rsm_backends.store import ObjectInfo, ObjectStore
from rsm_backends.store_config import StoreConfig

FOLDERS_MAX = 100_000
"""Topic folders that are looked for; behind them one task lists the rest."""

STRAY_KEYS_MAX = 1_000
"""Keys in no folder that are stepped over one by one while folders are looked for."""

PAGES_MAX = 10_000_000
STARTS = "/9AGMSZagmsz~"
"""Where looking for folders begins, each by itself: topic names begin anywhere between."""


@asynccontextmanager
async def opened(config: StoreConfig) -> AsyncIterator[ObjectStore]:
    """The store with its retries."""
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


def config_named(configs: Mapping[str, StoreConfig], name: str) -> StoreConfig:
    """InvalidRequest: no option says where it is."""
    config = configs.get(name)
    if config is None:
        raise InvalidRequest(
            f"no option says where the store {name!r} is", field="strandline.store"
        )
    return config


def key_ranges(config: StoreConfig) -> list[KeyRange]:
    """The store's keys in ranges, by its folders of topics: a request for each of those."""
    marks = asyncio.run(_folder_marks(config))
    return ranges_between(config.name, marks)


async def _folder_marks(config: StoreConfig) -> list[str]:
    async with opened(config) as store:
        starts = ["", *STARTS]
        found = await asyncio.gather(
            *(
                _folders(store, config.prefix, start, end)
                for start, end in zip(starts, [*starts[1:], None], strict=True)
            )
        )
    return marks_of_folders([folder for part in found for folder in part])


async def _folders(store: ObjectStore, prefix: str, start: str, end: str | None) -> list[str]:
    """The folders right below the prefix whose names lie above `start`, up to `end`."""
    folders: list[str] = []
    cursor: str | None = prefix + start if start else None
    strays = 0
    while len(folders) < FOLDERS_MAX and strays < STRAY_KEYS_MAX:
        page = await store.list_page(prefix, cursor=cursor, limit=1)
        if not page.objects:
            break
        key = page.objects[0].key
        if end is not None and key.encode() > (prefix + end).encode():
            break
        name, slash, _ = key[len(prefix) :].partition("/")
        if slash:
            folders.append(f"{prefix}{name}/")
            cursor = f"{prefix}{name}0"  # every key of the folder sorts below this
        else:
            strays += 1
            cursor = key
    return folders


def list_range(config: StoreConfig, range_: KeyRange) -> Iterator[tuple[ObjectInfo, ...]]:
    """The objects of a range, a page at a time, in order. Errors as the store raises them."""
    with asyncio.Runner() as runner:
        context = opened(config)
        store = runner.run(context.__aenter__())
        try:
            cursor = range_.after
            for _ in range(PAGES_MAX):
                page = runner.run(store.list_page(config.prefix, cursor=cursor))
                over = bool(page.objects) and range_.holds_no_more(page.objects[-1].key)
                if over:
                    yield tuple(each for each in page.objects if not range_.holds_no_more(each.key))
                    return
                yield page.objects
                cursor = page.next_cursor
                if cursor is None:
                    return
            raise RetryLater(f"the store {config.name!r} lists without an end")
        finally:
            runner.run(context.__aexit__(None, None, None))
