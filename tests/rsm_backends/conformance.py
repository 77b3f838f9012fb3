"""The checks that every object store passes; a new backend is done when it passes them.

    for check in CHECKS:
        await check.run(store, f"conformance/{check.name}/")

Each check is an async function of a store and a key prefix of its own. It raises AssertionError (or
the store's error) if a promise of `rsm_backends.store` is broken, and uses only the port. Promises
about crashes can't be checked from within; see the tests of the backends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import AlreadyExists, Conflict, CorruptData, InvalidRequest, NotFound
from rsm_backends.multipart import PartLimits, upload_parts
from rsm_backends.store import PART_BYTES_MIN, ObjectStore, UploadedPart
from rsm_backends.streams import read_all
from tests.rsm_backends.conformance_lists import (
    a_list_goes_on_after_its_cursor_was_deleted,
    a_list_goes_on_behind_any_key,
    folders_are_listed_each_once,
    lists_are_complete_and_in_byte_order,
    lists_order_other_scripts_by_their_bytes,
)
from tests.rsm_backends.conformance_versions import (
    versions_are_of_exactly_their_key,
    versions_below_a_prefix_are_of_nobody_else,
)

ABANDONED_STREAMS = 40
"""More than a store's connections, so that a leak shows (`connections_max` is 32)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise. `run(store, prefix)` uses only keys that start with `prefix`."""

    name: str
    run: Callable[[ObjectStore, str], Awaitable[None]]


async def what_is_put_is_read_back(store: ObjectStore, prefix: str) -> None:
    for size in (0, 1, 1000, 3 * 1024 * 1024 + 1):
        key = f"{prefix}size-{size}"
        data = _bytes(size)
        stored = await store.put(key, data, crc32c=crc32c_of(data))
        assert (stored.key, stored.size) == (key, size)
        assert await read_all(store, key) == data


async def keys_may_hold_any_printable_character(store: ObjectStore, prefix: str) -> None:
    for name in ("a b+c%20&d=e?f#g", "été/日本/🙂", "a.b-c_d~e", "(x)[y]{z}!$'*,;@", "..a/.b/c."):
        await _put(store, prefix + name, name.encode())
        assert await read_all(store, prefix + name) == name.encode()
        assert [found.key for found in (await store.list_page(prefix + name)).objects] == [
            prefix + name
        ]
        await store.delete_many([prefix + name])
        assert await _absent(store, prefix + name)


async def a_put_replaces_the_whole_object(store: ObjectStore, prefix: str) -> None:
    await _put(store, prefix + "a", _bytes(2000))
    await _put(store, prefix + "a", b"short")
    assert await read_all(store, prefix + "a") == b"short"
    described = await store.head(prefix + "a")
    assert (described.size, described.crc32c) == (5, crc32c_of(b"short"))


async def a_put_with_a_wrong_checksum_stores_nothing(store: ObjectStore, prefix: str) -> None:
    await _raises(CorruptData, store.put(prefix + "a", b"data", crc32c=crc32c_of(b"other")))
    assert await _absent(store, prefix + "a")


async def create_only_leaves_what_is_there(store: ObjectStore, prefix: str) -> None:
    first, second = b"first", b"second"
    await store.put(prefix + "a", first, crc32c=crc32c_of(first), create_only=True)
    await _raises(
        AlreadyExists,
        store.put(prefix + "a", second, crc32c=crc32c_of(second), create_only=True),
    )
    assert await read_all(store, prefix + "a") == first
    await store.delete_many([prefix + "a"])
    await store.put(prefix + "a", second, crc32c=crc32c_of(second), create_only=True)
    assert await read_all(store, prefix + "a") == second


async def of_many_creators_exactly_one_wins(store: ObjectStore, prefix: str) -> None:
    rivals = [b"rival %d" % number for number in range(8)]
    outcomes = await asyncio.gather(
        *(
            store.put(prefix + "a", rival, crc32c=crc32c_of(rival), create_only=True)
            for rival in rivals
        ),
        return_exceptions=True,
    )
    won = [
        rival
        for rival, outcome in zip(rivals, outcomes, strict=True)
        if not isinstance(outcome, BaseException)
    ]
    lost = [outcome for outcome in outcomes if isinstance(outcome, AlreadyExists)]
    assert len(won) == 1, outcomes
    assert len(lost) == len(rivals) - 1, outcomes
    assert await read_all(store, prefix + "a") == won[0]


async def a_replacement_is_of_the_object_it_names(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    await _put(store, key, b"first")
    first = (await store.head(key)).etag
    for number in range(8):
        await _put(store, f"{prefix}other-{number}", b"%d" % number)
    await store.replace(key, b"second", crc32c=crc32c_of(b"second"), etag=first)
    assert await read_all(store, key) == b"second"
    # Neither an earlier tag nor an unknown one names the object as it is now.
    late = crc32c_of(b"late")
    await _raises(Conflict, store.replace(key, b"late", crc32c=late, etag=first))
    await _raises(Conflict, store.replace(key, b"late", crc32c=late, etag='"none"'))
    await _raises(Conflict, store.replace(prefix + "none", b"late", crc32c=late, etag=first))
    now = (await store.head(key)).etag
    await _raises(CorruptData, store.replace(key, b"late", crc32c=late ^ 1, etag=now))
    assert await read_all(store, key) == b"second"
    assert await _absent(store, prefix + "none")


async def of_many_replacers_exactly_one_wins(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    await _put(store, key, b"first")
    etag = (await store.head(key)).etag
    bodies = [b"number %d" % number for number in range(8)]
    outcomes = await asyncio.gather(
        *(store.replace(key, body, crc32c=crc32c_of(body), etag=etag) for body in bodies),
        return_exceptions=True,
    )
    won = [body for body, outcome in zip(bodies, outcomes, strict=True) if _is_done(outcome)]
    assert won == [await read_all(store, key)]


def _is_done(outcome: object) -> bool:
    if isinstance(outcome, BaseException) and not isinstance(outcome, Conflict):
        raise outcome
    return not isinstance(outcome, Conflict)


async def a_range_is_exactly_those_bytes(store: ObjectStore, prefix: str) -> None:
    data = _bytes(1_000_000)
    await _put(store, prefix + "a", data)
    size = len(data)
    for start, end in (
        (0, 1), (0, size), (1, None), (size - 1, None), (10, 700_000), (5, size + 9),
        (300_000, 300_001), (7, 7), (0, 0), (size, None), (size, size + 5), (size + 5, None),
    ):  # fmt: skip
        assert await read_all(store, prefix + "a", start=start, end=end) == data[start:end]
    await _put(store, prefix + "empty", b"")
    assert await read_all(store, prefix + "empty", end=10) == b""


async def an_absent_object_is_not_found(store: ObjectStore, prefix: str) -> None:
    await _raises(NotFound, store.head(prefix + "none"))
    await _raises(NotFound, read_all(store, prefix + "none"))
    await _raises(NotFound, read_all(store, prefix + "none", start=3, end=5))
    await _raises(NotFound, read_all(store, prefix + "none", start=3, end=3))
    await _put(store, prefix + "folder/a", b"a")
    await _raises(NotFound, store.head(prefix + "folder"))
    await _raises(NotFound, store.head(prefix + "folder/a/b"))
    await _raises(NotFound, read_all(store, prefix + "folder"))


async def abandoned_streams_free_their_connections(store: ObjectStore, prefix: str) -> None:
    data = _bytes(2 * 1024 * 1024)
    await _put(store, prefix + "a", data)
    for _ in range(ABANDONED_STREAMS):
        stream = store.get(prefix + "a")
        first = await anext(stream)
        assert data.startswith(first)
        del stream
    assert await read_all(store, prefix + "a") == data


async def head_describes_the_object(store: ObjectStore, prefix: str) -> None:
    stored = await _put(store, prefix + "a", b"data")
    described = await store.head(prefix + "a")
    assert described.key == prefix + "a"
    assert described.size == 4
    assert described.crc32c == crc32c_of(b"data")
    assert described.last_modified_ms is not None
    assert described.etag == stored


async def deleting_takes_present_and_absent_keys(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "b/c", "keep"):
        await _put(store, prefix + name, b"x")
    keys = [f"{prefix}absent-{number}" for number in range(1100)]
    await store.delete_many([prefix + "a", *keys, prefix + "b/c", prefix + "b/c/none"])
    await store.delete_many([])
    left = (await store.list_page(prefix)).objects
    assert [found.key for found in left] == [prefix + "keep"]
    await _put(store, prefix + "b", b"its folder was empty and is gone")


async def an_upload_shows_only_when_complete(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    pieces = [_bytes(PART_BYTES_MIN), _bytes(PART_BYTES_MIN + 7), b"the end"]
    upload_id = await store.start_multipart(key)
    uploaded = await asyncio.gather(
        *(
            store.put_part(key, upload_id, number, pieces[number - 1], crc32c=crc32c_of(piece))
            for number, piece in reversed(list(enumerate(pieces, 1)))
        )
    )
    parts = sorted(uploaded, key=lambda part: part.number)
    assert [part.size for part in parts] == [len(piece) for piece in pieces]
    assert await _absent(store, key)
    assert (await store.list_page(prefix)).objects == ()
    whole = b"".join(pieces)
    await store.complete_multipart(key, upload_id, parts, crc32c=crc32c_of(whole))
    assert await read_all(store, key) == whole
    assert (
        await read_all(store, key, start=PART_BYTES_MIN - 3, end=PART_BYTES_MIN + 3)
        == (whole[PART_BYTES_MIN - 3 : PART_BYTES_MIN + 3])
    )
    described = await store.head(key)
    assert described.size == len(whole)
    assert described.crc32c in (None, crc32c_of(whole))
    assert upload_id not in await store.list_uploads(key)


async def a_damaged_part_or_object_is_refused(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    upload_id = await store.start_multipart(key)
    await _raises(
        CorruptData, store.put_part(key, upload_id, 1, b"data", crc32c=crc32c_of(b"other"))
    )
    part = await store.put_part(key, upload_id, 1, b"data", crc32c=crc32c_of(b"data"))
    await _raises(
        CorruptData,
        store.complete_multipart(key, upload_id, [part], crc32c=crc32c_of(b"other")),
    )
    assert await _absent(store, key)
    await store.abort_multipart(key, upload_id)


async def a_create_only_upload_leaves_what_is_there(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    await _put(store, key, b"first")
    upload_id, parts = await _one_part_upload(store, key, b"second")
    await _raises(
        AlreadyExists,
        store.complete_multipart(
            key, upload_id, parts, crc32c=crc32c_of(b"second"), create_only=True
        ),
    )
    assert await read_all(store, key) == b"first"
    await store.abort_multipart(key, upload_id)
    await store.delete_many([key])
    upload_id, parts = await _one_part_upload(store, key, b"third")
    await store.complete_multipart(
        key, upload_id, parts, crc32c=crc32c_of(b"third"), create_only=True
    )
    assert await read_all(store, key) == b"third"


async def a_part_sent_again_replaces_the_first(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    upload_id, _ = await _one_part_upload(store, key, b"first")
    part = await store.put_part(key, upload_id, 1, b"second", crc32c=crc32c_of(b"second"))
    await store.complete_multipart(key, upload_id, [part], crc32c=crc32c_of(b"second"))
    assert await read_all(store, key) == b"second"


async def an_aborted_upload_is_gone(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    upload_id, _ = await _one_part_upload(store, key, b"data")
    await store.abort_multipart(key, upload_id)
    await store.abort_multipart(key, upload_id)
    assert upload_id not in await store.list_uploads(key)
    assert await _absent(store, key)


async def an_aborted_upload_takes_nothing_more(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    upload_id, parts = await _one_part_upload(store, key, b"data")
    await store.abort_multipart(key, upload_id)
    await _raises(NotFound, store.put_part(key, upload_id, 2, b"late", crc32c=crc32c_of(b"late")))
    await _raises(
        NotFound, store.complete_multipart(key, upload_id, parts, crc32c=crc32c_of(b"data"))
    )
    assert await _absent(store, key)


async def uploads_are_listed_by_their_exact_key(store: ObjectStore, prefix: str) -> None:
    keys = [prefix + name for name in ("a", "a/b", "ab")]
    assert await store.list_uploads(keys[0]) == ()
    ids = {
        key: [await store.start_multipart(key), await store.start_multipart(key)] for key in keys
    }
    for key in keys:
        assert set(ids[key]) <= set(await store.list_uploads(key))
        others = {upload_id for other in keys if other != key for upload_id in ids[other]}
        assert not others & set(await store.list_uploads(key))
    for key in keys:
        for upload_id in await store.list_uploads(key):
            await store.abort_multipart(key, upload_id)
        assert await store.list_uploads(key) == ()


async def uploads_below_a_prefix_are_of_nobody_else(store: ObjectStore, prefix: str) -> None:
    """A store may list only some of them, or, like MinIO, none."""
    keys = [prefix + name for name in ("a/1", "a/2", "ab")]
    uploads = {(key, await store.start_multipart(key)) for key in keys}
    found = {(each.key, each.upload_id) for each in await store.uploads_below(prefix + "a/")}
    assert found <= {each for each in uploads if each[0] != keys[2]}
    for key, upload_id in uploads:
        await store.abort_multipart(key, upload_id)
    assert await store.uploads_below(prefix + "a/") == ()


async def a_part_that_was_not_stored_is_refused(store: ObjectStore, prefix: str) -> None:
    key = prefix + "a"
    upload_id, parts = await _one_part_upload(store, key, b"data")
    invented = UploadedPart(2, 4, crc32c_of(b"more"), '"00000000000000000000000000000000"')
    await _raises(
        InvalidRequest,
        store.complete_multipart(key, upload_id, [*parts, invented], crc32c=crc32c_of(b"datamore")),
    )
    assert await _absent(store, key)
    await store.abort_multipart(key, upload_id)


async def bad_arguments_are_refused_before_anything_happens(
    store: ObjectStore, prefix: str
) -> None:
    empty = crc32c_of(b"")
    for key in (
        "", "/a", "a//b", "a/", "a/../b", "..", "./a", "a/.", "a\0b", "a\nb", "\ud800", "é" * 513,
    ):  # fmt: skip
        await _raises(InvalidRequest, store.put(key, b"", crc32c=empty))
        await _raises(InvalidRequest, store.head(key))
        await _raises(InvalidRequest, read_all(store, key))
        await _raises(InvalidRequest, store.delete_many([prefix + "a", key]))
        await _raises(InvalidRequest, store.start_multipart(key))
    for start, end in ((-1, None), (0, -1), (5, 4)):
        await _raises(InvalidRequest, read_all(store, prefix + "a", start=start, end=end))
    for limit in (-1, 0, 1001):
        await _raises(InvalidRequest, store.list_page(prefix, limit=limit))
        await _raises(InvalidRequest, store.list_folders(prefix, limit=limit))
    for number in (-1, 0, 10_001):
        await _raises(InvalidRequest, store.put_part(prefix + "a", "u", number, b"", crc32c=empty))
    part = UploadedPart(1, 0, empty, '"x"')
    for parts in ([], [part, part]):
        await _raises(
            InvalidRequest, store.complete_multipart(prefix + "a", "u", parts, crc32c=empty)
        )
    assert (await store.list_page(prefix)).objects == ()


async def a_stream_is_uploaded_in_parallel_parts(store: ObjectStore, prefix: str) -> None:
    data = _bytes(2 * PART_BYTES_MIN + 12_345)

    class Source:
        """A stream whose pieces do not match the parts' size."""

        def __init__(self) -> None:
            self.at = 0

        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> bytes:
            piece = data[self.at : self.at + 700_001]
            if not piece:
                raise StopAsyncIteration
            self.at += len(piece)
            return piece

    for name in ("a", "b"):
        result = await upload_parts(
            store, prefix + name, Source(), PartLimits(PART_BYTES_MIN, 2), create_only=True
        )
        assert (result.size, result.crc32c) == (len(data), crc32c_of(data))
        assert await read_all(store, prefix + name) == data


CHECKS: tuple[Check, ...] = tuple(
    Check(check.__name__, check)
    for check in (
        what_is_put_is_read_back,
        keys_may_hold_any_printable_character,
        a_put_replaces_the_whole_object,
        a_put_with_a_wrong_checksum_stores_nothing,
        create_only_leaves_what_is_there,
        of_many_creators_exactly_one_wins,
        a_replacement_is_of_the_object_it_names,
        of_many_replacers_exactly_one_wins,
        a_range_is_exactly_those_bytes,
        an_absent_object_is_not_found,
        abandoned_streams_free_their_connections,
        head_describes_the_object,
        lists_are_complete_and_in_byte_order,
        lists_order_other_scripts_by_their_bytes,
        a_list_goes_on_after_its_cursor_was_deleted,
        a_list_goes_on_behind_any_key,
        folders_are_listed_each_once,
        deleting_takes_present_and_absent_keys,
        an_upload_shows_only_when_complete,
        a_damaged_part_or_object_is_refused,
        a_create_only_upload_leaves_what_is_there,
        a_part_sent_again_replaces_the_first,
        an_aborted_upload_is_gone,
        an_aborted_upload_takes_nothing_more,
        uploads_are_listed_by_their_exact_key,
        uploads_below_a_prefix_are_of_nobody_else,
        a_part_that_was_not_stored_is_refused,
        bad_arguments_are_refused_before_anything_happens,
        a_stream_is_uploaded_in_parallel_parts,
        versions_are_of_exactly_their_key,
        versions_below_a_prefix_are_of_nobody_else,
    )
)


def _bytes(size: int) -> bytes:
    """Bytes that differ from place to place, so that a shifted range shows."""
    pattern = b"".join(number.to_bytes(4, "big") for number in range(8191))
    return (pattern * (size // len(pattern) + 1))[:size]


async def _put(store: ObjectStore, key: str, data: bytes) -> str:
    return (await store.put(key, data, crc32c=crc32c_of(data))).etag


async def _one_part_upload(
    store: ObjectStore, key: str, data: bytes
) -> tuple[str, Sequence[UploadedPart]]:
    upload_id = await store.start_multipart(key)
    return upload_id, [await store.put_part(key, upload_id, 1, data, crc32c=crc32c_of(data))]


async def _absent(store: ObjectStore, key: str) -> bool:
    try:
        await store.head(key)
    except NotFound:
        return True
    return False


async def _raises(kind: type[Exception], call: Awaitable[object]) -> None:
    try:
        outcome = await call
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected, but the answer was {outcome!r}")
