"""Lists of a folder: one after the other, unless the disk is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Barrier, Event, Lock

import pytest

from rsm_backends import filesystem
from rsm_backends.filesystem import THREADS_MAX, FilesystemStore
from rsm_backends.object_files import ObjectFiles, Place


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    opened = FilesystemStore(tmp_path)
    yield opened
    await opened.close()


async def test_lists_of_a_quick_disk_follow_one_another(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, most = Lock(), []

    def walk(_: ObjectFiles, prefix: str, after: str | None) -> Iterator[Place]:
        most.append(alone.acquire(blocking=False))
        Event().wait(0.002)
        alone.release()
        return iter(())

    monkeypatch.setattr(ObjectFiles, "walk", walk)
    monkeypatch.setattr(filesystem, "LIST_TURN_S", 60.0)
    await asyncio.gather(*(store.list_page("a") for _ in range(30)))
    assert most == [True] * 30


async def test_lists_of_a_slow_disk_go_on_at_once(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Barrier(THREADS_MAX, timeout=60)

    def walk(_: ObjectFiles, prefix: str, after: str | None) -> Iterator[Place]:
        together.wait()
        return iter(())

    monkeypatch.setattr(ObjectFiles, "walk", walk)
    await asyncio.gather(*(store.list_page("a") for _ in range(2 * THREADS_MAX)))


async def test_a_list_that_is_given_up_or_fails_takes_nobody_s_turn(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "LIST_TURN_S", 60.0)
    go_on = Event()

    def walk(_: ObjectFiles, prefix: str, after: str | None) -> Iterator[Place]:
        if prefix == "slow":
            go_on.wait(60)
        if prefix == "fails":
            raise OSError
        return iter(())

    monkeypatch.setattr(ObjectFiles, "walk", walk)
    first = asyncio.create_task(store.list_page("slow"))
    second = asyncio.create_task(store.list_page("a"))
    third = asyncio.create_task(store.list_page("fails"))
    await asyncio.sleep(0.01)
    assert not second.done()
    second.cancel()
    first.cancel()
    assert isinstance((await asyncio.gather(third, return_exceptions=True))[0], Exception)
    assert (await store.list_page("a")).objects == ()
    go_on.set()
