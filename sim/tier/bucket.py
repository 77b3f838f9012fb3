"""The object store, and the way from a node to it.

A request is sent, arrives and is answered at three times. In between the node may die, give up or
hang; the request may take effect all the same, perhaps long after its sender gave it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.memory import MemoryStore
from rsm_backends.store import FolderPage, ListPage, ObjectInfo, UploadedPart
from rsm_backends.store_wrapper import PortCall, Read, Send, StoreWrapper
from sim.nodes.loop import complete, fail

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

PIECE_BYTES = 512

T = TypeVar("T")


class Bucket(MemoryStore):
    """The store's objects; each change is reported to the auditor before it happens."""

    def __init__(self, world: World) -> None:
        super().__init__(world.shown_ms)
        self._world = world

    @property
    def contents(self) -> dict[str, bytes]:
        """Every object by its key."""
        return {key: data for key, (_, data) in self._objects.items()}

    def content(self, key: str) -> bytes | None:
        """The bytes of an object; None if it does not exist."""
        found = self._objects.get(key)
        return None if found is None else found[1]

    def unfinished(self, *, with_parts: bool) -> list[str]:
        """Keys of unfinished uploads, with or without parts."""
        uploads = self._uploads.values()
        return sorted(upload.key for upload in uploads if bool(upload.parts) is with_parts)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self._objects:
                self._world.auditor.deleting(key)
        await super().delete_many(keys)
        self._world.late.deleted(keys)

    def _place(self, key: str, data: bytes, crc32c: int, create_only: bool) -> ObjectInfo:
        if not (create_only and key in self._objects):
            self._world.auditor.writing(key, data)
        info = super()._place(key, data, crc32c, create_only)
        self._world.damage.written(key)
        return info

    def rot(self, key: str) -> None:
        """Flip a bit of an object; its stored checksum stays."""
        if key in self._objects:
            info, data = self._objects[key]
            at = len(data) // 2
            self._objects[key] = (info, data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])

    def lose(self, key: str) -> None:
        """Delete an object, as somebody else would."""
        at_once(MemoryStore.delete_many(self, (key,)))


NAMES = {
    "list_page": "list",
    "list_folders": "list",
    "delete_many": "delete",
    "start_multipart": "start",
    "put_part": "part",
    "complete_multipart": "complete",
    "abort_multipart": "abort",
    "list_uploads": "uploads",
    "uploads_below": "uploads",
}
"""Names of the port's methods in scripts; the others keep theirs."""


class NodeStore(StoreWrapper):
    """A process's way to the bucket: the port `rsm_backends.store.ObjectStore`."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world.bucket)
        self._world = world
        self._process = process

    def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> Coroutine[Any, Any, ListPage]:
        few = min(limit, self._world.faults.page_limit)
        return super().list_page(prefix, cursor=cursor, limit=few)

    def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> Coroutine[Any, Any, FolderPage]:
        few = min(limit, self._world.faults.page_limit)
        return super().list_folders(prefix, cursor=cursor, limit=few)

    # What a request sends is fixed as it leaves: its sender may change it before it arrives.

    def delete_many(self, keys: Sequence[str]) -> Coroutine[Any, Any, None]:
        return super().delete_many(tuple(keys))

    def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> Coroutine[Any, Any, UploadedPart]:
        return super().put_part(key, upload_id, number, bytes(data), crc32c=crc32c)

    def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> Coroutine[Any, Any, ObjectInfo]:
        named = tuple(parts)
        return super().complete_multipart(
            key, upload_id, named, crc32c=crc32c, create_only=create_only
        )

    def _answer(self, call: PortCall, send: Send[T]) -> Coroutine[Any, Any, T]:
        return self._request(call, lambda: send(self._store))

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        data = await self._request(call, lambda: self._read(call, read))
        torn = self._world.faults.tears()
        for at in range(0, len(data), PIECE_BYTES):
            if torn and at:
                raise RetryLater(f"{call.key}: the connection broke off")
            yield data[at : at + PIECE_BYTES]

    async def _read(self, call: PortCall, read: Read) -> bytes:
        pieces = [piece async for piece in read(self._store, call.start)]
        return self._world.faults.damaged(call.key, b"".join(pieces))

    async def close(self) -> None:
        """Nothing to free."""

    async def _request(self, call: PortCall, effect: Callable[[], Coroutine[Any, Any, T]]) -> T:
        world, process = self._world, self._process
        name = f"{NAMES.get(call.operation, call.operation)} {world.short(call.key)}"
        await world.step(process, f"before {name}")
        fate = world.late.fate(call, world.faults.request(process.machine, name))
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if fate.refused:
            await asyncio.sleep(fate.delay_ms / 1000)
            raise RetryLater(f"the store does not take {name}")
        arrive = partial(self._arrive, name, future, effect, fate.answer_lost)
        world.late.send(call, fate, arrive)
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
        """Take effect in the store, also if the sender died, unless such requests die with it."""
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
        told = partial(complete, future, answer) if error is None else partial(fail, future, error)
        world.schedule.after(world.faults.latency_ms(), told)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found: T = stop.value
        return found
    coroutine.close()
    raise AssertionError("it waits")
