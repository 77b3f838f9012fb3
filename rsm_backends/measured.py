"""Counts, latencies and bytes of every store operation, told to a small observer.

Around the retrying store it measures the whole call, retries included; inside it, each attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

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
from rsm_backends.streams import closing_stream

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One ended call. `operation` is the port's method name.

    `duration_s` is the time spent waiting for the store; for a stream, without the reader's time.
    `error` is None, the `kind` of our error, "cancelled", or "internal" for anything else.
    """

    operation: str
    duration_s: float
    bytes_sent: int
    bytes_received: int
    error: str | None


class StoreObserver(Protocol):
    """Receives the measurements. Called on the event loop; must not block or raise."""

    def store_call_ended(self, call: StoreCall) -> None:
        """One call ended, successfully or not."""
        ...


class MeasuredStore:
    """A store that reports each call to `observer`."""

    def __init__(
        self, store: ObjectStore, observer: StoreObserver, *, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._observer = observer
        self._monotonic = monotonic

    def __repr__(self) -> str:
        """The store within."""
        return f"MeasuredStore({self._store!r})"

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        return await self._measured(
            "put",
            key,
            self._store.put(key, data, crc32c=crc32c, create_only=create_only),
            bytes_sent=len(data),
        )

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await self._measured(
            "replace",
            key,
            self._store.replace(key, data, crc32c=crc32c, etag=etag),
            bytes_sent=len(data),
        )

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._streamed("get", key, self._store.get(key, start=start, end=end))

    async def _streamed(
        self, operation: str, what: str, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        waited_s = 0.0
        received = 0
        error: str | None = None
        try:
            async with closing_stream(stream):
                while True:
                    began_at = self._monotonic()
                    try:
                        piece = await anext(stream, None)
                    finally:
                        waited_s += self._monotonic() - began_at
                    if piece is None:
                        return
                    received += len(piece)
                    yield piece
        except GeneratorExit:
            raise  # the reader stopped early: not an error
        except BaseException as raised:
            error = _kind_of(raised)
            raise
        finally:
            self._ended(what, StoreCall(operation, waited_s, 0, received, error))

    async def head(self, key: str) -> ObjectInfo:
        return await self._measured("head", key, self._store.head(key))

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        return await self._measured(
            "list_page", prefix, self._store.list_page(prefix, cursor=cursor, limit=limit)
        )

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        return await self._measured(
            "list_folders", prefix, self._store.list_folders(prefix, cursor=cursor, limit=limit)
        )

    async def delete_many(self, keys: Sequence[str]) -> None:
        await self._measured("delete_many", f"{len(keys)} keys", self._store.delete_many(keys))

    async def start_multipart(self, key: str) -> str:
        return await self._measured("start_multipart", key, self._store.start_multipart(key))

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        return await self._measured(
            "put_part",
            key,
            self._store.put_part(key, upload_id, number, data, crc32c=crc32c),
            bytes_sent=len(data),
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
        return await self._measured(
            "complete_multipart",
            key,
            self._store.complete_multipart(
                key, upload_id, parts, crc32c=crc32c, create_only=create_only
            ),
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await self._measured("abort_multipart", key, self._store.abort_multipart(key, upload_id))

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return await self._measured("list_uploads", key, self._store.list_uploads(key))

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return await self._measured("uploads_below", prefix, self._store.uploads_below(prefix))

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        return await self._measured("versions", key, self._store.versions(key))

    def get_version(self, key: str, version_id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        return self._streamed(
            "get_version", key, self._store.get_version(key, version_id, start=start)
        )

    async def close(self) -> None:
        await self._store.close()

    async def _measured(
        self, operation: str, what: str, call: Awaitable[_Answer], *, bytes_sent: int = 0
    ) -> _Answer:
        began_at = self._monotonic()
        error: str | None = None
        try:
            return await call
        except BaseException as raised:
            error = _kind_of(raised)
            raise
        finally:
            duration_s = self._monotonic() - began_at
            self._ended(what, StoreCall(operation, duration_s, bytes_sent, 0, error))

    def _ended(self, what: str, call: StoreCall) -> None:
        self._observer.store_call_ended(call)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "%r: %s of %s ended in %.0f ms, %d bytes sent, %d received: %s",
                self._store,
                call.operation,
                what,
                call.duration_s * 1_000,
                call.bytes_sent,
                call.bytes_received,
                call.error or "ok",
            )


def _kind_of(error: BaseException) -> str:
    if isinstance(error, StrandlineError):
        return error.kind
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"
