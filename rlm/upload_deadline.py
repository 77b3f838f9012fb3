"""A store that sends no byte of an upload at or after the upload's deadline.

The deadline stands in COPY_SEGMENT_STARTED: whoever cleans up after a dead attempt waits for it,
then deletes for good. So it must hold for every request, retries included, even when all hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import RetryLater
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
)

_Answer = TypeVar("_Answer")


class DeadlineStore:
    """Refuses writes after `deadline_ms` (since the epoch) and cancels those under way at it.

    Reads and the abort of an upload pass.
    """

    def __init__(self, store: ObjectStore, deadline_ms: int, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._deadline_ms = deadline_ms
        self._now_ms = now_ms

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        return await self._in_time(
            lambda: self._store.put(key, data, crc32c=crc32c, create_only=create_only)
        )

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await self._in_time(lambda: self._store.replace(key, data, crc32c=crc32c, etag=etag))

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._store.get(key, start=start, end=end)

    async def head(self, key: str) -> ObjectInfo:
        return await self._store.head(key)

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        return await self._store.list_page(prefix, cursor=cursor, limit=limit)

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        return await self._store.list_folders(prefix, cursor=cursor, limit=limit)

    async def delete_many(self, keys: Sequence[str]) -> None:
        await self._store.delete_many(keys)

    async def start_multipart(self, key: str) -> str:
        return await self._in_time(lambda: self._store.start_multipart(key))

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        return await self._in_time(
            lambda: self._store.put_part(key, upload_id, number, data, crc32c=crc32c)
        )

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        return await self._in_time(
            lambda: self._store.complete_multipart(
                key, upload_id, parts, crc32c=crc32c, create_only=create_only
            )
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await self._store.abort_multipart(key, upload_id)

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return await self._store.list_uploads(key)

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return await self._store.uploads_below(prefix)

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        return await self._store.versions(key)

    def get_version(self, key: str, version_id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        return self._store.get_version(key, version_id, start=start)

    async def close(self) -> None:
        await self._store.close()

    async def _in_time(self, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        left_ms = self._deadline_ms - self._now_ms()
        if left_ms <= 0:
            raise self._too_late()
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await send()
        except TimeoutError:
            raise self._too_late() from None

    def _too_late(self) -> RetryLater:
        return RetryLater(
            f"the upload's deadline ({self._deadline_ms} ms since the epoch) has passed: a new "
            "attempt needs a new segment id"
        )
