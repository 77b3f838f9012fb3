"""The conformance suite notices each of these broken stores, so that passing it means something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from kafka_formats.errors import NotFound, StrandlineError
from rsm_backends import memory
from rsm_backends.arguments import changed
from rsm_backends.memory import MemoryStore
from rsm_backends.store import FolderPage, ListPage, ObjectInfo, UploadedPart
from tests.rsm_backends.conformance import CHECKS
from tests.rsm_backends.stores import clock_ms


class OverwritesAlways(MemoryStore):
    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        return await super().put(key, data, crc32c=crc32c)


class ReplacesAnything(MemoryStore):
    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await super().put(key, data, crc32c=crc32c)


class LooksLongBeforeItReplaces(MemoryStore):
    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        if (await self.head(key)).etag != etag:
            raise changed(key)
        await asyncio.sleep(0)
        return await super().put(key, data, crc32c=crc32c)


class CompletesOverExisting(MemoryStore):
    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        return await super().complete_multipart(key, upload_id, parts, crc32c=crc32c)


class RangesAreOffByOne(MemoryStore):
    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        async for piece in super().get(key, start=start, end=None if end is None else end + 1):
            yield piece


class AbsentIsEmpty(MemoryStore):
    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        try:
            async for piece in super().get(key, start=start, end=end):
                yield piece
        except NotFound:
            return


class PagesLoseAKey(MemoryStore):
    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        page = await super().list_page(prefix, cursor=cursor, limit=limit)
        return page if page.next_cursor is None else replace(page, objects=page.objects[:-1])


class FoldersEndAfterAPage(MemoryStore):
    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        page = await super().list_folders(prefix, cursor=cursor, limit=limit)
        return replace(page, next_cursor=None)


class DeletesOnlyTheFirst(MemoryStore):
    async def delete_many(self, keys: Sequence[str]) -> None:
        await super().delete_many(keys[:1])


class UploadsByPrefix(MemoryStore):
    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return tuple(name for name, upload in self._uploads.items() if upload.key.startswith(key))


class AbortDoesNothing(MemoryStore):
    async def abort_multipart(self, key: str, upload_id: str) -> None: ...


class HeadForgetsTheChecksum(MemoryStore):
    async def head(self, key: str) -> ObjectInfo:
        return (await super().head(key))._replace(crc32c=None)


BROKEN = [
    OverwritesAlways,
    ReplacesAnything,
    LooksLongBeforeItReplaces,
    CompletesOverExisting,
    RangesAreOffByOne,
    AbsentIsEmpty,
    PagesLoseAKey,
    FoldersEndAfterAPage,
    DeletesOnlyTheFirst,
    UploadsByPrefix,
    AbortDoesNothing,
    HeadForgetsTheChecksum,
]


async def failed_checks(store: MemoryStore) -> list[str]:
    failed = []
    for check in CHECKS:
        try:
            await check.run(store, f"{check.name}/")
        except (AssertionError, StrandlineError):
            failed.append(check.name)
    return failed


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_store_is_noticed(broken: type[MemoryStore]) -> None:
    assert await failed_checks(broken(clock_ms())) != []


async def test_a_store_that_checks_no_checksum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "check_crc32c", lambda *_, **__: None)
    monkeypatch.setattr(memory, "check_combined_crc32c", lambda *_, **__: None)
    assert set(await failed_checks(MemoryStore(clock_ms()))) == {
        "a_put_with_a_wrong_checksum_stores_nothing",
        "a_replacement_is_of_the_object_it_names",
        "a_damaged_part_or_object_is_refused",
    }
