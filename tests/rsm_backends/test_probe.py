"""What `doctor` learns of a store, and that it cleans up after itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from kafka_formats.errors import Refused
from rsm_backends.memory import MemoryStore
from rsm_backends.probe import probe
from rsm_backends.store import ListPage, ObjectInfo
from tests.rsm_backends.stores import clock_ms, memory_store

STEPS = ["put", "head", "get", "range", "create-only", "list", "multipart", "delete"]


async def failing(store: MemoryStore) -> dict[str, str]:
    return {r.name: r.detail for r in await probe(store, "p/", "n") if not r.ok}


async def test_a_good_store_passes_every_step_and_is_left_clean() -> None:
    store = memory_store()
    results = await probe(store, "p/", "n")
    assert [result.name for result in results] == STEPS
    assert all(result.ok for result in results)
    assert (await store.list_page("")).objects == ()
    assert await store.list_uploads("p/_strandline/probe-n/upload") == ()


async def test_what_depends_on_a_failed_put_is_not_tried() -> None:
    class ReadOnly(MemoryStore):
        async def put(
            self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
        ) -> ObjectInfo:
            raise Refused("read-only; grant s3:PutObject")

    failed = await failing(ReadOnly(clock_ms()))
    assert failed.pop("put") == "read-only; grant s3:PutObject"
    assert set(failed.values()) == {"not tried, since put failed"}
    assert set(failed) == {"head", "get", "range", "create-only", "list"}


async def test_a_store_that_ignores_create_only_is_found_out() -> None:
    class Careless(MemoryStore):
        async def put(
            self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
        ) -> ObjectInfo:
            return await super().put(key, data, crc32c=crc32c)

    failed = await failing(Careless(clock_ms()))
    assert list(failed) == ["create-only"]
    assert "could overwrite each other" in failed["create-only"]


async def test_a_store_that_ignores_ranges_is_found_out() -> None:
    class WholeOnly(MemoryStore):
        async def get(
            self, key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            async for piece in super().get(key):
                yield piece

    assert list(await failing(WholeOnly(clock_ms()))) == ["range"]


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"size": 1}, "head"),
        ({"crc32c": 1}, "head"),
        ({"crc32c": None}, None),
    ],
)
async def test_a_wrong_description_is_found_out(change: dict[str, int], step: str | None) -> None:
    class Wrong(MemoryStore):
        async def head(self, key: str) -> ObjectInfo:
            return (await super().head(key))._replace(**change)  # type: ignore[arg-type]  # one field of several

    assert list(await failing(Wrong(clock_ms()))) == ([step] if step else [])


async def test_a_list_that_lags_and_a_delete_that_does_nothing_are_found_out() -> None:
    class Lagging(MemoryStore):
        async def list_page(
            self, prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> ListPage:
            return ListPage((), None)

        async def delete_many(self, keys: Sequence[str]) -> None: ...

    assert set(await failing(Lagging(clock_ms()))) == {"list", "delete"}


async def test_an_upload_without_the_right_to_list_it_is_aborted() -> None:
    class NoUploads(MemoryStore):
        async def list_uploads(self, key: str) -> tuple[str, ...]:
            raise Refused("grant s3:ListBucketMultipartUploads")

    store = NoUploads(clock_ms())
    assert await failing(store) == {"multipart": "grant s3:ListBucketMultipartUploads"}
    assert await MemoryStore.list_uploads(store, "p/_strandline/probe-n/upload") == ()


async def test_reading_other_bytes_than_written_is_found_out() -> None:
    class Lossy(MemoryStore):
        async def get(
            self, key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            yield b"x" * 59

    assert set(await failing(Lossy(clock_ms()))) == {"get", "range"}


async def test_an_upload_that_does_not_show_is_found_out() -> None:
    class Hidden(MemoryStore):
        async def list_uploads(self, key: str) -> tuple[str, ...]:
            return ()

    assert await failing(Hidden(clock_ms())) == {
        "multipart": "an unfinished upload is not listed by its key"
    }
