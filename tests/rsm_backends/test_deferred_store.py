"""A store that comes later: nothing but RetryLater until it is there, then the store itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import NotFound, RetryLater
from rsm_backends.deferred_store import DeferredStore
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.open_store import open_all
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.rsm_backends.conformance import CHECKS, Check
from tests.rsm_backends.stores import clock_ms, memory_store, no_wait


def on_disk(folder: Path) -> DeferredStore:
    async def open_it() -> ObjectStore:
        return FilesystemStore(folder)

    return DeferredStore("old", open_it)


async def test_a_folder_that_is_mounted_later_is_used_from_then_on(tmp_path: Path) -> None:
    folder = tmp_path / "not mounted"
    store = on_disk(folder)
    for _ in range(2):
        with pytest.raises(RetryLater, match=r"'old'.*not mounted"):
            await store.put("a", b"", crc32c=0)
        with pytest.raises(RetryLater, match="'old'"):
            await read_all(store, "a")
    folder.mkdir()
    await store.put("a", b"", crc32c=0)
    assert await read_all(store, "a") == b""
    await store.close()


async def test_a_closed_store_is_not_opened_any_more(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    await store.close()
    await store.close()
    with pytest.raises(RetryLater, match="closed"):
        await store.head("a")


def config(name: str, folder: Path) -> StoreConfig:
    return StoreConfig(name=name, kind="filesystem", path=folder)


async def opened(*configs: StoreConfig, needed: tuple[str, ...] = ()) -> dict[str, ObjectStore]:
    return await open_all(
        {each.name: each for each in configs},
        needed=needed,
        sleep=no_wait,
        monotonic=lambda: 0.0,
        random_fraction=lambda: 0.5,
        now_ms=clock_ms(),
    )


async def test_of_several_stores_one_may_be_missing_unless_it_is_needed(tmp_path: Path) -> None:
    main, old = config("main", tmp_path), config("old", tmp_path / "missing")
    with pytest.raises(NotFound, match="missing"):
        await opened(old, main, needed=("old",))
    with pytest.raises(NotFound, match="missing"):
        await opened(old)
    stores = await opened(old, main, needed=("main",))
    assert (await stores["main"].list_page("")).objects == ()
    with pytest.raises(RetryLater, match=r"'old'.*missing"):
        await stores["old"].list_page("")
    for store in stores.values():
        await store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_once_there_it_changes_nothing(check: Check) -> None:
    inner = memory_store()

    async def open_it() -> ObjectStore:
        return inner

    await check.run(DeferredStore("old", open_it), f"{check.name}/")
