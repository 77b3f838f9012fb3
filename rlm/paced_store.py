"""A store whose segment bytes move no faster than the node's limits let them.

Uploads are held back inside a request's body where the store sends it over a connection, and are
paid for afterwards where it does not (a file system). Reads are held back by taking the next piece
later: the connection fills up and the store waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from kafka_formats.crc32c import Buffer
from rlm.copy_turns import CopyTurns
from rlm.flow_limits import Flow
from rlm.object_keys import parse_segment_key
from rlm.worker_pace import WorkerPace
from rsm_backends.body_pace import BodyPace, pacing
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

_Answer = TypeVar("_Answer")


class PacedStore:
    """Around a store of a worker. Requests without a body or a stream pass."""

    def __init__(
        self, store: ObjectStore, prefix: str, pace: WorkerPace, turns: CopyTurns | None = None
    ) -> None:
        """`prefix` stands before every key of the store; the topic is read from what follows.

        `turns` hold uploads back while reads queue; None: nothing does.
        """
        self._turns = turns
        self._store = store
        self._prefix = prefix
        self._pace = pace

    def __repr__(self) -> str:
        """The store within."""
        return f"PacedStore({self._store!r})"

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        return await self._sent(
            key,
            len(data),
            lambda: self._store.put(key, data, crc32c=crc32c, create_only=create_only),
        )

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await self._sent(
            key, len(data), lambda: self._store.replace(key, data, crc32c=crc32c, etag=etag)
        )

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._received(key, self._store.get(key, start=start, end=end))

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
        return await self._store.start_multipart(key)

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        return await self._sent(
            key,
            len(data),
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
        return await self._store.complete_multipart(
            key, upload_id, parts, crc32c=crc32c, create_only=create_only
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
        return self._received(key, self._store.get_version(key, version_id, start=start))

    async def close(self) -> None:
        await self._store.close()

    async def _received(self, key: str, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        topic = self._topic(key)
        async with closing_stream(stream) as pieces:
            async for piece in pieces:
                await self._pace.take(Flow.READ, topic, len(piece))
                yield piece

    async def _sent(self, key: str, size: int, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        topic = self._topic(key)
        if self._turns is not None:
            await self._turns.before(size)
        piece_bytes = self._pace.piece_bytes(Flow.COPY, topic)
        if piece_bytes is None:
            return await send()
        body = BodyPace(lambda piece: self._pace.take(Flow.COPY, topic, piece), piece_bytes)
        async with self._pace.sending(topic):
            with pacing(body):
                answer = await send()
            await self._pace.take(Flow.COPY, topic, max(0, size - body.asked_bytes))
        return answer

    def _topic(self, key: str) -> str | None:
        parsed = parse_segment_key(self._prefix, key)
        return None if parsed is None else parsed.segment_id.partition.topic
