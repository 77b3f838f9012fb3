"""Pages of a folder's list: it is read once, and what is deleted meanwhile is not listed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rsm_backends import filesystem, object_files
from rsm_backends.filesystem import WALKS_KEPT, FilesystemStore

NAMES = [f"t/{number:04}" for number in range(2_000)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    (tmp_path / "t").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(b"")
    opened = FilesystemStore(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each time that a folder is read."""
    times: list[int] = []
    names = object_files._names

    def counted(folder: int, *, at_root: bool) -> Iterator[str]:
        times.append(folder)
        return names(folder, at_root=at_root)

    monkeypatch.setattr(object_files, "_names", counted)
    return times


async def listed(store: FilesystemStore, limit: int, prefix: str = "t/") -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_page(prefix, cursor=cursor, limit=limit)
        found += (each.key for each in page.objects)
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_a_folder_is_read_once_for_all_pages(store: FilesystemStore, read: list[int]) -> None:
    assert await listed(store, 1) == NAMES
    assert len(read) == 1


async def test_lists_side_by_side_and_the_same_page_twice_are_whole(
    store: FilesystemStore,
) -> None:
    assert await asyncio.gather(*(listed(store, 7) for _ in range(5))) == [NAMES] * 5
    first = await store.list_page("t/", limit=5)
    again = [await store.list_page("t/", cursor=first.next_cursor, limit=5) for _ in range(3)]
    assert again == again[:1] * 3
    assert [each.key for each in again[0].objects] == NAMES[5:10]


async def test_what_was_deleted_between_two_pages_is_not_listed(
    store: FilesystemStore, tmp_path: Path
) -> None:
    first = await store.list_page("t/", limit=3)
    await store.delete_many(NAMES[3:5])
    (tmp_path / NAMES[6]).write_bytes(b"longer")
    second = await store.list_page("t/", cursor=first.next_cursor, limit=2)
    assert [(each.key, each.size) for each in second.objects] == [(NAMES[5], 0), (NAMES[6], 6)]
    await store.delete_many(NAMES[7:])
    last = await store.list_page("t/", cursor=second.next_cursor, limit=2)
    assert (last.objects, last.next_cursor) == ((), None)


async def test_few_lists_are_kept_and_none_for_long(
    store: FilesystemStore, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [await store.list_page(f"t/{each:02}", limit=1) for each in range(WALKS_KEPT + 1)]
    assert len(store._walks) == WALKS_KEPT
    read.clear()
    first = await store.list_page("t/00", cursor=pages[0].next_cursor, limit=1)
    assert [each.key for each in first.objects] == [NAMES[1]]
    assert len(read) == 1, "the oldest was let go"
    monkeypatch.setattr(filesystem, "WALK_KEPT_S", 0.0)
    page = await store.list_page("t/", limit=1)
    while ("t/", NAMES[0]) in store._walks:
        await asyncio.sleep(0)
    read.clear()
    rest = await store.list_page("t/", cursor=page.next_cursor, limit=1)
    assert [each.key for each in rest.objects] == [NAMES[1]]
    assert len(read) == 1, "it was let go"


async def test_a_list_that_is_let_go_holds_no_folder_open(store: FilesystemStore) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    for each in range(10 * WALKS_KEPT):
        await store.list_page(f"t/{each:03}", limit=1)
    assert open_files() <= before + 2 * WALKS_KEPT, "each holds the root and the folder"
    await store.close()
    await asyncio.sleep(0)  # the loop still has the last page in hand
    assert open_files() < before


async def test_what_became_a_folder_between_two_pages_is_no_object(
    store: FilesystemStore, tmp_path: Path
) -> None:
    first = await store.list_page("t/", limit=1)
    (tmp_path / NAMES[1]).unlink()
    (tmp_path / NAMES[1]).mkdir()
    second = await store.list_page("t/", cursor=first.next_cursor, limit=1)
    assert [each.key for each in second.objects] == [NAMES[2]]
