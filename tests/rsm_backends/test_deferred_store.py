"""A store that comes later: nothing but RetryLater until it is there, then the store itself."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_formats.errors import NotFound, RetryLater
from rsm_backends import deferred_store
from rsm_backends.deferred_store import DeferredStore
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.open_store import open_all
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.rsm_backends.conformance import CHECKS, Check
from tests.rsm_backends.stores import clock_ms, memory_store, no_wait
from tests.rsm_backends.stores import opened as opened_alone


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


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Set: what hangs goes on."""
    found = threading.Event()
    yield found
    found.set()


@pytest.fixture
def hung(gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose mount hangs while it is opened."""
    folder, os_open = tmp_path / "hung", os.open
    folder.mkdir()

    def hangs(path: object, *rest: int, dir_fd: int | None = None) -> int:
        if path == folder:
            gate.wait(10)
        return os_open(path, *rest, dir_fd=dir_fd)  # type: ignore[arg-type]  # as os.open takes it

    monkeypatch.setattr(os, "open", hangs)
    monkeypatch.setattr(deferred_store, "OPEN_DEADLINE_S", 0.05)
    return folder


async def test_a_store_whose_mount_hangs_holds_up_neither_the_loop_nor_the_other_stores(
    hung: Path, gate: threading.Event, tmp_path: Path
) -> None:
    stores = await opened(config("main", tmp_path), config("old", hung), needed=("main",))
    assert not gate.is_set()
    await stores["main"].put("a", b"", crc32c=0)
    threads = threading.active_count()
    for _ in range(5):
        with pytest.raises(RetryLater, match=r"'old'.*mount answers"):
            await stores["old"].head("a")
    assert threading.active_count() == threads
    gate.set()
    async with asyncio.timeout(30):
        while True:
            try:
                await stores["old"].put("a", b"", crc32c=0)
                break
            except RetryLater:
                pass
    for store in stores.values():
        await store.close()


async def test_a_node_opens_without_its_only_store_while_that_hangs(
    hung: Path, gate: threading.Event
) -> None:
    store = (await opened(config("main", hung), needed=("main",)))["main"]
    with pytest.raises(RetryLater, match="'main'"):
        await store.head("a")
    assert not gate.is_set()
    await store.close()


async def test_a_single_store_that_hangs_is_an_error_in_time(hung: Path) -> None:
    with pytest.raises(RetryLater, match=r"'old'.*mount answers"):
        async with opened_alone(config("old", hung)):
            pass


async def test_a_store_that_is_closed_while_its_mount_hangs_is_closed_at_once(
    hung: Path, gate: threading.Event, tmp_path: Path
) -> None:
    stores = await opened(config("main", tmp_path), config("old", hung), needed=("main",))
    async with asyncio.timeout(5):
        for store in stores.values():
            await store.close()
    assert not gate.is_set()
    with pytest.raises(RetryLater, match="closed"):
        await stores["old"].head("a")


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOTCONN, errno.EIO])
async def test_a_mount_that_is_dead_is_a_store_that_may_come_back(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, os_open = tmp_path / "dead", os.open
    dead.mkdir()

    def fails(path: object, *rest: int, dir_fd: int | None = None) -> int:
        if path == dead:
            raise OSError(number, os.strerror(number))
        return os_open(path, *rest, dir_fd=dir_fd)  # type: ignore[arg-type]  # as os.open takes it

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fails)
        stores = await opened(config("main", tmp_path), config("old", dead), needed=("main",))
        with pytest.raises(RetryLater, match=f"'old'.*{os.strerror(number)}"):
            await stores["old"].head("a")
    await stores["old"].put("a", b"", crc32c=0)
    for store in stores.values():
        await store.close()
