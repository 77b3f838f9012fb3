"""Stores as plain calls, for tasks and for the driver: each opens its own and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from kafka_formats.errors import InvalidRequest, RetryLater
from pipeline.catalogue.bucket_folders import folders
from pipeline.listing.key_ranges import KeyRange, marks_of_folders, ranges_between
from pipeline.opened_store import opened
from rsm_backends.arguments import PAGE_KEYS_MAX
from rsm_backends.store import ObjectInfo, ObjectStore
from rsm_backends.store_config import StoreConfig

FOLDERS_MAX = 100_000
"""Topic folders that are looked for; behind them one task lists the rest."""

STRAY_KEYS_MAX = 1_000
"""Keys in no folder that are stepped over one by one while folders are looked for."""

PAGES_MAX = 10_000_000
FIRST_PAGE_KEYS = 30
PAGE_GROWTH = 6
"""Pages grow from few keys to full ones: a short range is not to bring a thousand behind it."""

STARTS = "/9AGMSZagmsz~"
"""Where looking for folders begins, each by itself: topic names begin anywhere between."""


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
                _folders(store, config.prefix, above, up_to)
                for above, up_to in zip(starts, [*starts[1:], None], strict=True)
            )
        )
    return marks_of_folders([folder for part in found for folder in part])


async def _folders(store: ObjectStore, prefix: str, above: str, up_to: str | None) -> list[str]:
    found: list[str] = []
    async for each in folders(store, prefix, above=above, up_to=up_to, strays_max=STRAY_KEYS_MAX):
        found.append(each)
        if len(found) == FOLDERS_MAX:
            break
    return found


def list_ranges(
    config: StoreConfig, ranges: Iterable[KeyRange]
) -> Iterator[tuple[ObjectInfo, ...]]:
    """The objects of some ranges, a page at a time, each range in order. Errors as the store raises
    them.
    """
    with asyncio.Runner() as runner:
        context = opened(config)
        store = runner.run(context.__aenter__())
        try:
            for range_ in ranges:
                yield from _pages(runner, store, config, range_)
        finally:
            runner.run(context.__aexit__(None, None, None))


def _pages(
    runner: asyncio.Runner, store: ObjectStore, config: StoreConfig, range_: KeyRange
) -> Iterator[tuple[ObjectInfo, ...]]:
    cursor = range_.after
    limit = FIRST_PAGE_KEYS
    for _ in range(PAGES_MAX):
        page = runner.run(store.list_page(config.prefix, cursor=cursor, limit=limit))
        limit = min(limit * PAGE_GROWTH, PAGE_KEYS_MAX)
        if page.objects and range_.holds_no_more(page.objects[-1].key):
            yield tuple(each for each in page.objects if not range_.holds_no_more(each.key))
            return
        yield page.objects
        cursor = page.next_cursor
        if cursor is None:
            return
    raise RetryLater(f"the store {config.name!r} lists without an end")
