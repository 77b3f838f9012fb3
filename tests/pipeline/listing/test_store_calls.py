"""Ranges of a bucket's keys list each of its objects once, and ask for little more."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipeline.listing import store_calls
from pipeline.listing.key_ranges import ranges_between
from pipeline.listing.store_calls import FIRST_PAGE_KEYS, key_ranges, list_ranges
from pipeline.stores.opened_store import opened
from rsm_backends.arguments import PAGE_KEYS_MAX
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig

SMALL_TOPICS = 20
OBJECTS_OF_A_SMALL_TOPIC = 9
OBJECTS_OF_THE_LARGE_ONE = 2_500
FEW_KEYS = 50


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    small = [
        f"small{topic:02}-AAAAAAAAAAAAAAAAAAAAAA/0/{number}.log"
        for topic in range(SMALL_TOPICS)
        for number in range(OBJECTS_OF_A_SMALL_TOPIC)
    ]
    large = [
        f"large-AAAAAAAAAAAAAAAAAAAAAA/{number % 12}/{number}.log"
        for number in range(OBJECTS_OF_THE_LARGE_ONE)
    ]
    for key in (*small, *large, "stray", "zz/strays/2"):
        path = tmp_path / "tier" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return StoreConfig(name="main", kind="filesystem", path=tmp_path, prefix="tier/")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys each request for a page brought."""
    brought: list[int] = []

    @asynccontextmanager
    async def watched(config: StoreConfig) -> AsyncIterator[ObjectStore]:
        async with opened(config) as store:
            list_page = store.list_page

            async def counted(*given: object, **more: object) -> object:
                page = await list_page(*given, **more)  # type: ignore[arg-type]
                brought.append(len(page.objects))
                return page

            monkeypatch.setattr(store, "list_page", counted)
            yield store

    monkeypatch.setattr(store_calls, "opened", watched)
    return brought


def test_each_object_is_listed_once_and_small_ranges_bring_few_of_their_neighbours(
    config: StoreConfig, pages: list[int]
) -> None:
    ranges = key_ranges(config)
    pages.clear()
    listed = [each.key for page in list_ranges(config, ranges) for each in page]
    assert config.path is not None
    there = [
        path.relative_to(config.path).as_posix()
        for path in config.path.rglob("*")
        if path.is_file()
    ]
    assert sorted(listed) == sorted(there)
    assert sum(pages) <= 3 * len(there) + FEW_KEYS * len(ranges)


def test_a_store_that_one_page_shows_is_one_range(
    config: StoreConfig, pages: list[int], tmp_path: Path
) -> None:
    """Ten for each topic were a task and a request or more each, mostly for nothing."""
    shutil.rmtree(tmp_path / "tier" / "large-AAAAAAAAAAAAAAAAAAAAAA")
    there = SMALL_TOPICS * OBJECTS_OF_A_SMALL_TOPIC + 2
    (whole,) = key_ranges(config)
    assert pages == [there]
    assert (whole.after, whole.last) == (None, None)
    assert sum(map(len, list_ranges(config, [whole]))) == there


def test_a_long_range_is_listed_in_full_pages(config: StoreConfig, pages: list[int]) -> None:
    (whole,) = ranges_between("main", ())
    listed = [each.key for page in list_ranges(config, [whole]) for each in page]
    assert listed == sorted(listed)
    assert len(listed) == OBJECTS_OF_THE_LARGE_ONE + SMALL_TOPICS * OBJECTS_OF_A_SMALL_TOPIC + 2
    assert pages[0] == FIRST_PAGE_KEYS
    assert pages[-2] == PAGE_KEYS_MAX
    assert len(pages) <= 6
