"""The conformance suite's checks of lists."""

from __future__ import annotations

from kafka_formats.crc32c import crc32c as crc32c_of
from rsm_backends.store import ListPage, ObjectStore


async def lists_are_complete_and_in_byte_order(store: ObjectStore, prefix: str) -> None:
    names = ["a", "b/c", "b-c", "b0", "B", "b/c-d", "z/y/x", "z/y-x", "b/a/q", "~"]
    for name in names:
        await _put(store, prefix + name, name.encode())
    expected = sorted((prefix + name for name in names), key=str.encode)
    for limit in (1, 2, 5, len(names), 1000):
        pages = await _pages(store, prefix, limit)
        assert [found.key for page in pages for found in page.objects] == expected
        assert all(len(page.objects) <= limit for page in pages)
    sizes = {found.key: found.size for found in (await store.list_page(prefix)).objects}
    assert sizes == {prefix + name: len(name.encode()) for name in names}
    for part in ("b", "b/", "b/c", "z/y", "none", "b/c/none"):
        page = await store.list_page(prefix + part)
        assert [found.key for found in page.objects] == [
            key for key in expected if key.startswith(prefix + part)
        ]
        assert page.next_cursor is None


async def lists_order_other_scripts_by_their_bytes(store: ObjectStore, prefix: str) -> None:
    names = ["🙂", "ｚ", "é", "日/本", "z", "日-本"]  # UTF-16 would put the first before the second
    for name in names:
        await _put(store, prefix + name, name.encode())
    expected = sorted((prefix + name for name in names), key=str.encode)
    for limit in (1, 4, 1000):
        pages = await _pages(store, prefix, limit)
        assert [found.key for page in pages for found in page.objects] == expected
        assert await _folders(store, prefix, limit) == [prefix + "日/"]


async def a_list_goes_on_after_its_cursor_was_deleted(store: ObjectStore, prefix: str) -> None:
    for name in "abcd":
        await _put(store, prefix + name, b"")
    page = await store.list_page(prefix, limit=2)
    await store.delete_many([prefix + "b"])
    rest = await store.list_page(prefix, cursor=page.next_cursor, limit=2)
    assert [found.key for found in rest.objects] == [prefix + "c", prefix + "d"]


async def a_list_goes_on_behind_any_key(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "b/c", "b/d", "c"):
        await _put(store, prefix + name, b"")
    for key, expected in (
        ("", ["a", "b/c", "b/d", "c"]), ("a", ["b/c", "b/d", "c"]), ("b0", ["c"]),
        ("b/c0", ["b/d", "c"]), ("c", []),
    ):  # fmt: skip
        pages = [await store.list_page(prefix, cursor=prefix + key, limit=1)]
        while pages[-1].next_cursor is not None:
            pages.append(await store.list_page(prefix, cursor=pages[-1].next_cursor, limit=1))
        found = [each.key for page in pages for each in page.objects]
        assert found == [prefix + name for name in expected]
    below = await store.list_page(prefix + "b/", cursor=prefix + "a")
    assert [each.key for each in below.objects] == [prefix + "b/c", prefix + "b/d"]


async def folders_are_listed_each_once(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "b/c", "b/d/e", "b-c", "b0/x", "b-/x/y", "z/y/x", "b/z", "c"):
        await _put(store, prefix + name, b"")
    for below, expected in (
        ("", ["b-/", "b/", "b0/", "z/"]), ("b", ["b-/", "b/", "b0/"]), ("b/", ["b/d/"]),
        ("b/d", ["b/d/"]), ("b/d/", []), ("none", []), ("none/", []),
    ):  # fmt: skip
        for limit in (1, 2, 1000):
            assert await _folders(store, prefix + below, limit) == [
                prefix + name for name in expected
            ]
    await store.delete_many([prefix + "b/d/e"])
    assert await _folders(store, prefix + "b/", 1000) == []


async def _put(store: ObjectStore, key: str, data: bytes) -> None:
    await store.put(key, data, crc32c=crc32c_of(data))


async def _pages(store: ObjectStore, prefix: str, limit: int) -> list[ListPage]:
    pages = [await store.list_page(prefix, limit=limit)]
    while pages[-1].next_cursor is not None:
        pages.append(await store.list_page(prefix, cursor=pages[-1].next_cursor, limit=limit))
    return pages


async def _folders(store: ObjectStore, prefix: str, limit: int) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_folders(prefix, cursor=cursor, limit=limit)
        assert len(page.folders) <= limit
        found += page.folders
        cursor = page.next_cursor
        if cursor is None:
            return found
