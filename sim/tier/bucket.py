"""The object store: what it holds, and what lies between it and a node.

A request leaves, arrives and is answered at three moments. In between the node may die, give up or
stand still; the request takes effect all the same, perhaps long after its sender gave it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.memory import MemoryStore
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
)

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

PIECE_BYTES = 512

T = TypeVar("T")


class Bucket(MemoryStore):
    """What the store holds; the auditor hears of every change before it happens."""

    def __init__(self, world: World) -> None:
        super().__init__(world.now_ms)
        self._world = world

    @property
    def contents(self) -> dict[str, bytes]:
        """Every object by its key."""
        return {key: data for key, (_, data) in self._objects.items()}

    def content(self, key: str) -> bytes | None:
        """One object."""
        found = self._objects.get(key)
        return None if found is None else found[1]

    def unfinished(self, *, with_parts: bool) -> list[str]:
        """The keys of uploads that were neither completed nor aborted, with or without parts."""
        uploads = self._uploads.values()
        return sorted(upload.key for upload in uploads if bool(upload.parts) is with_parts)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self._objects:
                self._world.auditor.deleting(key)
        await super().delete_many(keys)

    def _place(self, key: str, data: bytes, crc32c: int, create_only: bool) -> ObjectInfo:
        if not (create_only and key in self._objects):
            self._world.auditor.writing(key, data)
        info = super()._place(key, data, crc32c, create_only)
        self._world.damage.written(key)
        return info

    def rot(self, key: str) -> None:
        """A byte of an object turns; what the store says of it stays as it was."""
        if key in self._objects:
            info, data = self._objects[key]
            at = len(data) // 2
            self._objects[key] = (info, data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])

    def lose(self, key: str) -> None:
        """Somebody else deletes an object."""
        at_once(MemoryStore.delete_many(self, (key,)))


class NodeStore:
    """One process's way to the bucket: the port `rsm_backends.store.ObjectStore`."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._bucket = world.bucket

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        held = bytes(data)
        return await self._request(
            "put", key, lambda: self._bucket.put(key, held, crc32c=crc32c, create_only=create_only)
        )

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await self._request(
            "replace", key, lambda: self._bucket.replace(key, data, crc32c=crc32c, etag=etag)
        )

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        data = await self._request("get", key, lambda: self._read(key, start, end))
        torn = self._world.faults.tears()
        for at in range(0, len(data), PIECE_BYTES):
            if torn and at:
                raise RetryLater(f"{key}: the connection broke off")
            yield data[at : at + PIECE_BYTES]

    async def _read(self, key: str, start: int, end: int | None) -> bytes:
        pieces = [piece async for piece in self._bucket.get(key, start=start, end=end)]
        return self._world.faults.damaged(key, b"".join(pieces))

    async def head(self, key: str) -> ObjectInfo:
        return await self._request("head", key, lambda: self._bucket.head(key))

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        few = min(limit, self._world.faults.page_limit)
        return await self._request(
            "list", prefix, lambda: self._bucket.list_page(prefix, cursor=cursor, limit=few)
        )

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        few = min(limit, self._world.faults.page_limit)
        return await self._request(
            "list", prefix, lambda: self._bucket.list_folders(prefix, cursor=cursor, limit=few)
        )

    async def delete_many(self, keys: Sequence[str]) -> None:
        gone = tuple(keys)
        await self._request("delete", gone[0], lambda: self._bucket.delete_many(gone))

    async def start_multipart(self, key: str) -> str:
        return await self._request("start", key, lambda: self._bucket.start_multipart(key))

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        held = bytes(data)
        return await self._request(
            "part",
            key,
            lambda: self._bucket.put_part(key, upload_id, number, held, crc32c=crc32c),
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
        named = tuple(parts)
        return await self._request(
            "complete",
            key,
            lambda: self._bucket.complete_multipart(
                key, upload_id, named, crc32c=crc32c, create_only=create_only
            ),
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await self._request("abort", key, lambda: self._bucket.abort_multipart(key, upload_id))

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return await self._request("uploads", key, lambda: self._bucket.list_uploads(key))

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return await self._request("uploads", prefix, lambda: self._bucket.uploads_below(prefix))

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        return await self._request("versions", key, lambda: self._bucket.versions(key))

    async def get_version(
        self, key: str, version_id: str, *, start: int = 0
    ) -> AsyncIterator[bytes]:
        async for piece in self._bucket.get_version(key, version_id, start=start):
            yield piece

    async def close(self) -> None:
        """Nothing to free."""

    async def _request(
        self, operation: str, key: str, effect: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        world, process = self._world, self._process
        name = f"{operation} {world.short(key)}"
        await world.step(process, f"before {name}")
        fate = world.faults.request(process.machine, name)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if fate.refused:
            await asyncio.sleep(fate.delay_ms / 1000)
            raise RetryLater(f"the store does not take {name}")
        arrive = partial(self._arrive, name, future, effect, fate.answer_lost)
        world.schedule.after(fate.delay_ms, arrive)
        if fate.given_up_ms is not None:
            await asyncio.sleep(fate.given_up_ms / 1000)
            raise RetryLater(f"{name} gave no answer")
        answer = await future
        await world.step(process, f"after {name}")
        return answer

    def _arrive(
        self,
        name: str,
        future: asyncio.Future[T],
        effect: Callable[[], Coroutine[Any, Any, T]],
        answer_lost: bool,
    ) -> None:
        """In the store, whatever became of the sender."""
        world = self._world
        if not self._process.life.alive and world.faults.dies_with_its_sender():
            return
        error: StrandlineError | None = None
        answer: T | None = None
        try:
            answer = at_once(effect())
        except StrandlineError as found:
            error = found
        world.note(f"store: {name}" + (f" -> {type(error).__name__}" if error else ""))
        if answer_lost:
            error = RetryLater(f"{name} gave no answer")
        world.schedule.after(world.faults.latency_ms(), partial(_answer, future, answer, error))


def _answer(future: asyncio.Future[T], answer: Any, error: StrandlineError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found: T = stop.value
        return found
    coroutine.close()
    raise AssertionError("it waits")
