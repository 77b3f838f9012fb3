"""Blocking calls to stores, for tasks and the driver; each opens its own store and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from kafka_formats.errors import InvalidRequest, RetryLater
from pipeline.listing.key_ranges import KeyRange, marks_of_folders, ranges_between
from pipeline.stores.opened_store import opened
from rsm_backends.arguments import PAGE_KEYS_MAX
from rsm_backends.store import ObjectInfo, ObjectStore
from rsm_backends.store_config import StoreConfig

FOLDER_PAGES_MAX = 100
"""Limit of the pages in which topic folders are searched; one task lists all keys after them."""

ONE_RANGE_KEYS_MAX = PAGE_KEYS_MAX
"""A store with at most this many keys is not cut: each further range costs a task and a request."""

PAGES_MAX = 10_000_000
FIRST_PAGE_KEYS = 30
PAGE_GROWTH = 6
"""Growth of pages from few keys to full ones, so that a short range does not fetch a thousand keys
too many.
"""


def config_named(configs: Mapping[str, StoreConfig], name: str) -> StoreConfig:
    """The store of this name; InvalidRequest if no option gives its address."""
    config = configs.get(name)
    if config is None:
        raise InvalidRequest(
            f"no option gives the address of the store {name!r}: give strandline.store.{name}",
            field="strandline.store",
        )
    return config


def key_ranges(config: StoreConfig) -> list[KeyRange]:
    """The store's keys in ranges, by its topic folders; one request lists a thousand of them. One
    range if the keys are few.
    """
    marks = asyncio.run(_folder_marks(config))
    return ranges_between(config.name, marks)


async def _folder_marks(config: StoreConfig) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    async with opened(config) as store:
        first = await store.list_page(config.prefix, limit=ONE_RANGE_KEYS_MAX)
        if first.next_cursor is None:
            return []
        for _ in range(FOLDER_PAGES_MAX):
            page = await store.list_folders(config.prefix, cursor=cursor)
            found += page.folders
            cursor = page.next_cursor
            if cursor is None:
                break
    return marks_of_folders(found)


def list_ranges(
    config: StoreConfig, ranges: Iterable[KeyRange]
) -> Iterator[tuple[ObjectInfo, ...]]:
    """The objects of some ranges, a page at a time, each range in order. Errors of the store are
    passed on.
    """
    with asyncio.Runner() as runner:
        context = opened(config)
        store = runner.run(context.__aenter__())
        try:
            for range_ in ranges:
                yield from _pages(runner.get_loop(), store, config, range_)
        finally:
            runner.run(context.__aexit__(None, None, None))


def _pages(
    loop: asyncio.AbstractEventLoop, store: ObjectStore, config: StoreConfig, range_: KeyRange
) -> Iterator[tuple[ObjectInfo, ...]]:
    cursor = range_.after
    limit = FIRST_PAGE_KEYS
    for _ in range(PAGES_MAX):
        # Not `Runner.run`: its handler for Ctrl-C formats the page as text, twice.
        page = loop.run_until_complete(store.list_page(config.prefix, cursor=cursor, limit=limit))
        limit = min(limit * PAGE_GROWTH, PAGE_KEYS_MAX)
        if page.objects and range_.holds_no_more(page.objects[-1].key):
            yield tuple(each for each in page.objects if not range_.holds_no_more(each.key))
            return
        yield page.objects
        cursor = page.next_cursor
        if cursor is None:
            return
    raise RetryLater(f"the list of store {config.name!r} does not end after {PAGES_MAX} pages")
