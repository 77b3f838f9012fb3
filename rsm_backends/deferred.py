"""A store that could not be opened yet; each call tries again until it opens.

For stores that a node can do without for a while, such as a folder whose disk is not mounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
)
from rsm_backends.streams import closing_stream


class DeferredStore:
    """Passes calls on once `open_store` has succeeded; until then RetryLater with the reason."""

    def __init__(self, name: str, open_store: Callable[[], Awaitable[ObjectStore]]) -> None:
        """`name` is the store's name in the configuration, for errors."""
        self._name = name
        self._open_store = open_store
        self._opening = asyncio.Lock()
        self._store: ObjectStore | None = None
        self._closed = False

    def __repr__(self) -> str:
        """The name, and the store within once it is open."""
        return f"DeferredStore({self._name!r}, {self._store!r})"

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        store = await self._opened()
        return await store.put(key, data, crc32c=crc32c, create_only=create_only)

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await (await self._opened()).replace(key, data, crc32c=crc32c, etag=etag)

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        store = await self._opened()
        async with closing_stream(store.get(key, start=start, end=end)) as stream:
            async for piece in stream:
                yield piece

    async def head(self, key: str) -> ObjectInfo:
        return await (await self._opened()).head(key)

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        return await (await self._opened()).list_page(prefix, cursor=cursor, limit=limit)

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        return await (await self._opened()).list_folders(prefix, cursor=cursor, limit=limit)

    async def delete_many(self, keys: Sequence[str]) -> None:
        await (await self._opened()).delete_many(keys)

    async def start_multipart(self, key: str) -> str:
        return await (await self._opened()).start_multipart(key)

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        store = await self._opened()
        return await store.put_part(key, upload_id, number, data, crc32c=crc32c)

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        store = await self._opened()
        return await store.complete_multipart(
            key, upload_id, parts, crc32c=crc32c, create_only=create_only
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await (await self._opened()).abort_multipart(key, upload_id)

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return await (await self._opened()).list_uploads(key)

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return await (await self._opened()).uploads_below(prefix)

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        return await (await self._opened()).versions(key)

    async def get_version(
        self, key: str, version_id: str, *, start: int = 0
    ) -> AsyncIterator[bytes]:
        store = await self._opened()
        async with closing_stream(store.get_version(key, version_id, start=start)) as stream:
            async for piece in stream:
                yield piece

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._store is not None:
                await self._store.close()

    async def _opened(self) -> ObjectStore:
        if self._store is None:
            async with self._opening:
                if self._closed:
                    raise RetryLater(f"the store {self._name!r} is closed")
                if self._store is None:
                    try:
                        self._store = await self._open_store()
                    except StrandlineError as error:
                        raise RetryLater(
                            f"the store {self._name!r} cannot be opened now: {error}"
                        ) from error
        return self._store
