"""The conformance suite's checks of versions, which few stores keep."""

from __future__ import annotations

from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import NotFound
from rsm_backends.store import ObjectStore
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


async def read_version(store: ObjectStore, key: str, version_id: str, *, start: int = 0) -> bytes:
    """The version's bytes from `start` on."""
    async with closing_stream(store.get_version(key, version_id, start=start)) as stream:
        return b"".join([piece async for piece in stream])


async def _put(store: ObjectStore, key: str, data: bytes) -> None:
    await store.put(key, data, crc32c=crc32c_of(data))
