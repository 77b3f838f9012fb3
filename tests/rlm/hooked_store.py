"""The store as one life of a node reaches it: a hook before and after every call, and no effect
any more once the process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import StrandlineError
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
)

Hook = Callable[[str], Awaitable[None]]
OnLate = Callable[[str, Callable[[], Awaitable[object]]], None]
"""The name of a request, and the request."""

_Answer = TypeVar("_Answer")


async def no_hook(_: str) -> None:
    """Nothing happens at any step."""


def failing(step: str, error: Callable[[], StrandlineError], times: int = 1) -> Hook:
    """Raises at the first `times` passages of a step."""
    left = times

    async def hook(name: str) -> None:
        nonlocal left
        if name == step and left > 0:
            left -= 1
            raise error()

    return hook


class HookedStore:
    """Steps are named for the call and the kind of object: `before put .indexes`."""

    def __init__(self, store: ObjectStore, hook: Hook) -> None:
        self._store = store
        self._hook = hook
        self._dead = False
        self._on_late: OnLate | None = None

    def die(self, on_late: OnLate | None) -> None:
        """The process is gone; requests that wait at a hook were on their way: `on_late`'s now."""
        self._dead, self._on_late = True, on_late

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        return await self._step(
            f"put {_kind(key)}",
            lambda: self._store.put(key, data, crc32c=crc32c, create_only=create_only),
        )

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await self._step(
            f"replace {_kind(key)}",
            lambda: self._store.replace(key, data, crc32c=crc32c, etag=etag),
        )

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self._check_alive()
        await self._hook(f"before get {_kind(key)}")
        self._check_alive()
        async for piece in self._store.get(key, start=start, end=end):
            yield piece

    async def head(self, key: str) -> ObjectInfo:
        return await self._step(f"head {_kind(key)}", lambda: self._store.head(key))

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        return await self._step(
            "list", lambda: self._store.list_page(prefix, cursor=cursor, limit=limit)
        )

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        return await self._step(
            "list folders", lambda: self._store.list_folders(prefix, cursor=cursor, limit=limit)
        )

    async def delete_many(self, keys: Sequence[str]) -> None:
        what = "probe" if all(_kind(key) == "probe" for key in keys) else "objects"
        await self._step(f"delete {what}", lambda: self._store.delete_many(keys))

    async def start_multipart(self, key: str) -> str:
        return await self._step(f"start {_kind(key)}", lambda: self._store.start_multipart(key))

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        return await self._step(
            f"put part of {_kind(key)}",
            lambda: self._store.put_part(key, upload_id, number, data, crc32c=crc32c),
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
        return await self._step(
            f"complete {_kind(key)}",
            lambda: self._store.complete_multipart(
                key, upload_id, parts, crc32c=crc32c, create_only=create_only
            ),
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await self._step(f"abort {_kind(key)}", lambda: self._store.abort_multipart(key, upload_id))

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return await self._step(
            f"list uploads of {_kind(key)}", lambda: self._store.list_uploads(key)
        )

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return await self._step("list uploads", lambda: self._store.uploads_below(prefix))

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        return await self._step(f"versions of {_kind(key)}", lambda: self._store.versions(key))

    def get_version(self, key: str, version_id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        self._check_alive()
        return self._store.get_version(key, version_id, start=start)

    async def close(self) -> None:
        await self._store.close()

    async def _step(self, name: str, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        self._check_alive()
        try:
            await self._hook(f"before {name}")
        except asyncio.CancelledError:
            if self._on_late is not None:
                self._on_late(name, call)
            raise
        self._check_alive()
        answer = await call()
        await self._hook(f"after {name}")
        return answer

    def _check_alive(self) -> None:
        """A process that is gone sends nothing, not even while it is being taken down."""
        if self._dead:
            raise asyncio.CancelledError


def _kind(key: str) -> str:
    name = key.rpartition("/")[2]
    if name.startswith("clock-probe"):
        return "probe"
    if name == "cluster.json":
        return "marker"
    return name[name.index(".") :]
