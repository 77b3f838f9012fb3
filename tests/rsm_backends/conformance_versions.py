"""The conformance suite's checks of versions, which few stores keep."""

from __future__ import annotations

from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import InvalidRequest, NotFound
from rsm_backends.store import KeptVersion, ObjectStore
from rsm_backends.streams import closing_stream


async def versions_are_of_exactly_their_key(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "ab", "a-b"):
        await _put(store, prefix + name, name.encode())
    assert await store.versions(prefix + "none") == ()
    for name in ("a", "ab", "a-b"):
        for version in await store.versions(prefix + name):
            assert version.size == len(name)
            data = await read_version(store, prefix + name, version.version_id)
            assert data == name.encode()
    try:
        await read_version(store, prefix + "none", "null")
    except NotFound:
        return
    raise AssertionError("a version of an absent object was read")


async def what_is_replaced_or_deleted_can_be_read(store: ObjectStore, prefix: str) -> None:
    """Only for a store that keeps versions."""
    key = prefix + "a"
    for data in (b"first", b"second"):
        await _put(store, key, data)
    await store.delete_many([key])
    found = await store.versions(key)
    assert [version.size for version in found] == [6, 5]
    assert [await read_version(store, key, each.version_id) for each in found] == [
        b"second",
        b"first",
    ]
    newest = found[0].version_id
    assert await read_version(store, key, newest, start=2) == b"cond"
    assert await read_version(store, key, newest, start=6) == b""


async def versions_below_a_prefix_are_of_nobody_else(store: ObjectStore, prefix: str) -> None:
    """A store without versions lists none; a bucket without versioning has one of each object."""
    for name in ("p/a", "p/b", "q"):
        await _put(store, prefix + name, b"data")
    found = await versions_below(store, prefix + "p/")
    assert {each.key for each in found} <= {prefix + "p/a", prefix + "p/b"}
    assert [each.size for each in found] == [4] * len(found)
    assert await versions_below(store, prefix + "none") == []
    await store.delete_version(prefix + "none", "null")
    try:
        await store.delete_version(prefix + "q", "")
    except InvalidRequest:
        assert (await store.head(prefix + "q")).size == 4
        return
    raise AssertionError("a version without an id was deleted")


async def a_version_that_is_deleted_is_gone(store: ObjectStore, prefix: str) -> None:
    """Only for a store that keeps versions: nothing is left at the end, in pages of any size."""
    for name in ("a", "b/c", "d"):
        for data in (b"first", b"second!"):
            await _put(store, prefix + name, data)
        await store.delete_many([prefix + name])
    found = await versions_below(store, prefix)
    assert sorted(found) == sorted(await versions_below(store, prefix, limit=1000))
    assert [each.key for each in found] == sorted(each.key for each in found)
    of_a = [each for each in found if each.key == prefix + "a"]
    assert sorted((each.size, each.is_marker) for each in of_a) == [
        (0, True), (5, False), (7, False),
    ]  # fmt: skip
    for each in of_a:
        if not each.is_marker:
            await store.delete_version(each.key, each.version_id)
            await store.delete_version(each.key, each.version_id)
    left = await versions_below(store, prefix)
    assert [each.is_marker for each in left if each.key == prefix + "a"] == [True]
    assert [each for each in left if each.key != prefix + "a"] == [
        each for each in found if each.key != prefix + "a"
    ]
    for each in left:
        await store.delete_version(each.key, each.version_id)
    assert await versions_below(store, prefix) == []


async def the_last_marker_brings_the_newest_version_back(store: ObjectStore, prefix: str) -> None:
    """Only for a store that keeps versions: so whoever deletes takes the markers last."""
    key = prefix + "a"
    for data in (b"first", b"second!"):
        await _put(store, key, data)
    await store.delete_many([key])
    (marker,) = [each for each in await versions_below(store, key) if each.is_marker]
    await store.delete_version(key, marker.version_id)
    assert (await store.head(key)).size == 7
    newest = next(each for each in await versions_below(store, key) if each.size == 7)
    await store.delete_version(key, newest.version_id)
    assert (await store.head(key)).size == 5


async def versions_below(store: ObjectStore, prefix: str, *, limit: int = 1) -> list[KeptVersion]:
    """All of them, in pages."""
    pages = [await store.versions_below(prefix, limit=limit)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(await store.versions_below(prefix, cursor=cursor, limit=limit))
    return [each for page in pages for each in page.versions]


VERSIONED = (
    what_is_replaced_or_deleted_can_be_read,
    a_version_that_is_deleted_is_gone,
    the_last_marker_brings_the_newest_version_back,
)
"""The checks of a store that keeps versions."""


async def read_version(store: ObjectStore, key: str, version_id: str, *, start: int = 0) -> bytes:
    """The version's bytes from `start` on."""
    async with closing_stream(store.get_version(key, version_id, start=start)) as stream:
        return b"".join([piece async for piece in stream])


async def _put(store: ObjectStore, key: str, data: bytes) -> None:
    await store.put(key, data, crc32c=crc32c_of(data))
