"""The base of every store that wraps a different one.

The port's methods are listed once, here. Each becomes one of two calls: `_answer`, awaited for its
answer, or `_stream`, read piece by piece. A wrapper overrides these two, and a method of the port
only if that method needs something special.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_formats.crc32c import Buffer
from rsm_backends.arguments import shown
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
    VersionPage,
)

_Answer = TypeVar("_Answer")
_Coming = Coroutine[Any, Any, _Answer]

Send = Callable[[ObjectStore], Coroutine[Any, Any, _Answer]]
"""Makes a call on a store, a new one each time."""
Read = Callable[[ObjectStore, int], AsyncIterator[bytes]]
"""Opens a stream of a store from a byte on, a new one each time."""


@dataclass(slots=True)
class PortCall:
    """One call of the port; not frozen, since each call creates one.

    `operation` is the method's name; `key` its key or prefix, the first of several keys, "" for no
    key. `body_bytes` is the size of the body; None: it sends no body. A stream has the bytes
    [start, end); `end` None means up to the end.
    """

    operation: str
    key: str
    words: str
    body_bytes: int | None = None
    start: int = 0
    end: int | None = None

    def __str__(self) -> str:
        """The call in words, for messages: put of 'a'. Created only when there is a message."""
        return self.words.format(shown(self.key))


class PortCalls(ABC):
    """The whole port, reduced to `_answer` and `_stream`."""

    @abstractmethod
    def _answer(self, call: PortCall, send: Send[_Answer]) -> _Coming[_Answer]: ...

    @abstractmethod
    def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]: ...

    @abstractmethod
    async def close(self) -> None: ...

    # Plain functions that return the coroutine: one frame less at each await of a part or a range.

    def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> _Coming[ObjectInfo]:
        return self._answer(
            PortCall("put", key, "put of {}", len(data)),
            lambda store: store.put(key, data, crc32c=crc32c, create_only=create_only),
        )

    def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> _Coming[ObjectInfo]:
        return self._answer(
            PortCall("replace", key, "replacement of {}", len(data)),
            lambda store: store.replace(key, data, crc32c=crc32c, etag=etag),
        )

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._stream(
            PortCall("get", key, "get of {}", None, start, end),
            lambda store, at: store.get(key, start=at, end=end),
        )

    def head(self, key: str) -> _Coming[ObjectInfo]:
        return self._answer(PortCall("head", key, "head of {}"), lambda store: store.head(key))

    def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> _Coming[ListPage]:
        return self._answer(
            PortCall("list_page", prefix, "list of {}"),
            lambda store: store.list_page(prefix, cursor=cursor, limit=limit),
        )

    def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> _Coming[FolderPage]:
        return self._answer(
            PortCall("list_folders", prefix, "list of the folders in {}"),
            lambda store: store.list_folders(prefix, cursor=cursor, limit=limit),
        )

    def delete_many(self, keys: Sequence[str]) -> _Coming[None]:
        first = keys[0] if keys else ""
        return self._answer(
            PortCall("delete_many", first, f"delete of {len(keys)} objects"),
            lambda store: store.delete_many(keys),
        )

    def start_multipart(self, key: str) -> _Coming[str]:
        return self._answer(
            PortCall("start_multipart", key, "start of an upload of {}"),
            lambda store: store.start_multipart(key),
        )

    def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> _Coming[UploadedPart]:
        return self._answer(
            PortCall("put_part", key, f"put of part {number} of {{}}", len(data)),
            lambda store: store.put_part(key, upload_id, number, data, crc32c=crc32c),
        )

    def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> _Coming[ObjectInfo]:
        return self._answer(
            PortCall("complete_multipart", key, "completion of {}"),
            lambda store: store.complete_multipart(
                key, upload_id, parts, crc32c=crc32c, create_only=create_only
            ),
        )

    def abort_multipart(self, key: str, upload_id: str) -> _Coming[None]:
        return self._answer(
            PortCall("abort_multipart", key, "abort of an upload of {}"),
            lambda store: store.abort_multipart(key, upload_id),
        )

    def list_uploads(self, key: str) -> _Coming[tuple[str, ...]]:
        return self._answer(
            PortCall("list_uploads", key, "list of the uploads of {}"),
            lambda store: store.list_uploads(key),
        )

    def uploads_below(self, prefix: str) -> _Coming[tuple[UnfinishedUpload, ...]]:
        return self._answer(
            PortCall("uploads_below", prefix, "list of the uploads below {}"),
            lambda store: store.uploads_below(prefix),
        )

    def versions(self, key: str) -> _Coming[tuple[ObjectVersion, ...]]:
        return self._answer(
            PortCall("versions", key, "list of the versions of {}"),
            lambda store: store.versions(key),
        )

    def get_version(self, key: str, version_id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        return self._stream(
            PortCall("get_version", key, "get of a version of {}", None, start),
            lambda store, at: store.get_version(key, version_id, start=at),
        )

    def versions_below(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> _Coming[VersionPage]:
        return self._answer(
            PortCall("versions_below", prefix, "list of the versions below {}"),
            lambda store: store.versions_below(prefix, cursor=cursor, limit=limit),
        )

    def delete_version(self, key: str, version_id: str) -> _Coming[None]:
        return self._answer(
            PortCall("delete_version", key, "delete of a version of {}"),
            lambda store: store.delete_version(key, version_id),
        )


class StoreWrapper(PortCalls):
    """A wrapper of a store: passes every call to the inner store unless a subclass overrides it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        """The class, and the inner store."""
        return f"{type(self).__name__}({self._store!r})"

    def _answer(self, call: PortCall, send: Send[_Answer]) -> _Coming[_Answer]:  # noqa: ARG002
        return send(self._store)

    def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        return read(self._store, call.start)

    async def close(self) -> None:
        """Close the inner store."""
        await self._store.close()
