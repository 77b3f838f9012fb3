"""A store that fails on purpose, for tests and the simulation.

Real stores fail in these three ways: an error before anything happened, an error after it happened
(the lost answer, the hard case), and a stream that breaks off. To the caller all look alike:
RetryLater.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.arguments import shown
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


class FaultKind(Enum):
    """The kind of failure. TORN is for streams; other operations treat it as LOST_ANSWER."""

    NONE = "none"
    BEFORE_EFFECT = "before_effect"
    LOST_ANSWER = "lost_answer"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Fault:
    """The failure of one call, if any, and the delay in seconds before it."""

    kind: FaultKind = FaultKind.NONE
    latency_s: float = 0.0


class FaultPlan(Protocol):
    """Decides call by call. `operation` is the port's method name."""

    def next_fault(self, operation: str, key: str) -> Fault:
        """The fault for the call about to be made."""
        ...


class RandomFaults:
    """Each call fails with these probabilities; a seeded `random_fraction` replays a run."""

    def __init__(
        self,
        random_fraction: Callable[[], float],
        *,
        before_effect: float = 0.1,
        lost_answer: float = 0.1,
        torn: float = 0.1,
        latency_max_s: float = 0.0,
    ) -> None:
        self._random_fraction = random_fraction
        self._before_effect = before_effect
        self._lost_answer = lost_answer
        self._torn = torn
        self._latency_max_s = latency_max_s

    def next_fault(self, operation: str, key: str) -> Fault:  # noqa: ARG002 (the port's shape)
        drawn = self._random_fraction()
        latency_s = self._random_fraction() * self._latency_max_s
        if drawn < self._before_effect:
            return Fault(FaultKind.BEFORE_EFFECT, latency_s)
        drawn -= self._before_effect
        if operation != "get":
            lost = drawn < self._lost_answer
            return Fault(FaultKind.LOST_ANSWER if lost else FaultKind.NONE, latency_s)
        return Fault(FaultKind.TORN if drawn < self._torn else FaultKind.NONE, latency_s)


class ScriptedFaults:
    """Exactly these faults: a call takes the first remaining entry for its operation, if any."""

    def __init__(self, script: Iterable[tuple[str, FaultKind]]) -> None:
        self._script = list(script)

    @property
    def left(self) -> int:
        """Number of entries that no call has taken yet."""
        return len(self._script)

    def next_fault(self, operation: str, key: str) -> Fault:  # noqa: ARG002 (the port's shape)
        for at, (name, kind) in enumerate(self._script):
            if name == operation:
                del self._script[at]
                return Fault(kind)
        return Fault()


class FaultyStore:
    """`store`, with the faults of `plan`. `sleep` serves the plan's latencies."""

    def __init__(
        self,
        store: ObjectStore,
        plan: FaultPlan,
        *,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._plan = plan
        self._sleep = sleep

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        return await self._maybe(
            "put",
            key,
            lambda: self._store.put(key, data, crc32c=crc32c, create_only=create_only),
        )

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        return await self._maybe(
            "replace", key, lambda: self._store.replace(key, data, crc32c=crc32c, etag=etag)
        )

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._torn("get", key, self._store.get(key, start=start, end=end))

    async def _torn(
        self, operation: str, key: str, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        fault = await self._fate(operation, key)
        if fault.kind is FaultKind.BEFORE_EFFECT:
            raise _planted(operation, key)
        async with closing_stream(stream) as pieces:
            async for piece in pieces:
                if fault.kind is not FaultKind.NONE:
                    yield piece[: len(piece) // 2]
                    raise _planted(operation, key)
                yield piece
        if fault.kind is not FaultKind.NONE:
            raise _planted(operation, key)

    async def head(self, key: str) -> ObjectInfo:
        return await self._maybe("head", key, lambda: self._store.head(key))

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        return await self._maybe(
            "list_page",
            prefix,
            lambda: self._store.list_page(prefix, cursor=cursor, limit=limit),
        )

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        return await self._maybe(
            "list_folders",
            prefix,
            lambda: self._store.list_folders(prefix, cursor=cursor, limit=limit),
        )

    async def delete_many(self, keys: Sequence[str]) -> None:
        key = keys[0] if keys else ""
        await self._maybe("delete_many", key, lambda: self._store.delete_many(keys))

    async def start_multipart(self, key: str) -> str:
        return await self._maybe("start_multipart", key, lambda: self._store.start_multipart(key))

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        return await self._maybe(
            "put_part",
            key,
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
        return await self._maybe(
            "complete_multipart",
            key,
            lambda: self._store.complete_multipart(
                key, upload_id, parts, crc32c=crc32c, create_only=create_only
            ),
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await self._maybe(
            "abort_multipart", key, lambda: self._store.abort_multipart(key, upload_id)
        )

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        return await self._maybe("list_uploads", key, lambda: self._store.list_uploads(key))

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return await self._maybe("uploads_below", prefix, lambda: self._store.uploads_below(prefix))

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        return await self._maybe("versions", key, lambda: self._store.versions(key))

    def get_version(self, key: str, version_id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        return self._torn("get_version", key, self._store.get_version(key, version_id, start=start))

    async def close(self) -> None:
        await self._store.close()

    async def _fate(self, operation: str, key: str) -> Fault:
        fault = self._plan.next_fault(operation, key)
        if fault.latency_s > 0 and self._sleep is not None:
            await self._sleep(fault.latency_s)
        return fault

    async def _maybe(
        self, operation: str, key: str, call: Callable[[], Awaitable[_Answer]]
    ) -> _Answer:
        fault = await self._fate(operation, key)
        if fault.kind is FaultKind.NONE:
            return await call()
        if fault.kind is FaultKind.BEFORE_EFFECT:
            raise _planted(operation, key)
        try:
            await call()
        except StrandlineError as error:
            raise _planted(operation, key) from error  # a refusal may be lost like any answer
        raise _planted(operation, key)


def _planted(operation: str, key: str) -> RetryLater:
    return RetryLater(f"planted fault: {operation} of {shown(key)} gave no answer")
