"""Retries around any store: full jitter, a deadline per call, and a check after every lost answer.

Only `RetryLater` is repeated. NotFound, AlreadyExists, Refused, InvalidRequest and CorruptData are
raised at once: repeating cannot change them. A create-only write whose answer was lost may have
succeeded; its repetition then finds its own object. So once an attempt ended without a clear
answer, "already exists" and "no such upload" are settled by reading the object: if it has the same
size and CRC32C, this write succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    RetryLater,
    StrandlineError,
)
from rsm_backends.arguments import shown
from rsm_backends.slow_down import SlowDown
from rsm_backends.store import ObjectInfo, ObjectStore, UploadedPart
from rsm_backends.store_wrapper import PortCall, Read, Send, StoreWrapper
from rsm_backends.streams import closing_stream

_Answer = TypeVar("_Answer")

PROGRESS_BYTES = 64 * 1024
"""The bytes that a stream has to deliver within the deadline; one that delivers less is given up.
"""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts and waits; the n-th wait is random in [0, min(max, base * 2^(n-1)))."""

    attempts_max: int = 6
    backoff_base_s: float = 0.1
    backoff_max_s: float = 10.0
    deadline_s: float = 120.0

    def wait_s(self, failures: int, fraction: float) -> float:
        """Seconds to wait after `failures` failed attempts; `fraction` in [0, 1) is random."""
        ceiling_s = self.backoff_base_s * 2.0 ** min(failures - 1, 32)
        return fraction * min(self.backoff_max_s, ceiling_s)

    def wait_after_s(self, error: RetryLater, failures: int, fraction: float) -> float:
        """The wait of `wait_s`, but at least as long as the store asked for."""
        pause_s = error.pause_s if isinstance(error, SlowDown) else 0.0
        return max(self.wait_s(failures, fraction), pause_s)


@dataclass(frozen=True, slots=True)
class _Settling(Generic[_Answer]):
    """A check after a lost answer, made on these errors or when attempts run out: `look` returns
    the answer if the write did succeed, else None.
    """

    after: tuple[type[StrandlineError], ...]
    look: Callable[[], Awaitable[_Answer | None]]


class RetryingStore(StoreWrapper):
    """A store that repeats calls that may be repeated. `deadline_s` bounds one call, retries
    included.

    A broken stream is resumed at the byte where it ended. Its deadline starts anew with every
    `PROGRESS_BYTES`, so that a very slow stream ends; the reader's own time does not count. An
    object replaced in between may thus be read half old, half new: readers verify the bytes.
    """

    def __init__(
        self,
        store: ObjectStore,
        policy: RetryPolicy,
        *,
        sleep: Callable[[float], Awaitable[None]],
        random_fraction: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(store)
        self._policy = policy
        self._sleep = sleep
        self._random_fraction = random_fraction
        self._monotonic = monotonic

    def _answer(self, call: PortCall, send: Send[_Answer]) -> Coroutine[Any, Any, _Answer]:
        # A lost start_multipart leaves an upload of unknown id, which a clean-up of the key aborts.
        return self._repeated(call, lambda: send(self._store))

    def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> Coroutine[Any, Any, ObjectInfo]:
        return self._repeated(
            f"put of {shown(key)}",
            lambda: self._store.put(key, data, crc32c=crc32c, create_only=create_only),
            _Settling((AlreadyExists,), lambda: self._ours(key, len(data), crc32c)),
        )

    def replace(
        self, key: str, data: bytes, *, crc32c: int, etag: str
    ) -> Coroutine[Any, Any, ObjectInfo]:
        return self._repeated(
            f"replacement of {shown(key)}",
            lambda: self._store.replace(key, data, crc32c=crc32c, etag=etag),
            _Settling((Conflict,), lambda: self._ours(key, len(data), crc32c)),
        )

    def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> Coroutine[Any, Any, ObjectInfo]:
        size = sum(part.size for part in parts)
        return self._repeated(
            f"completion of {shown(key)}",
            lambda: self._store.complete_multipart(
                key, upload_id, parts, crc32c=crc32c, create_only=create_only
            ),
            # The id of a completed upload is no longer known, create-only or not.
            _Settling((AlreadyExists, NotFound), lambda: self._ours(key, size, crc32c)),
        )

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        at = moved_from = call.start
        failures = 0
        waited_s = 0.0
        while True:
            stream = read(self._store, at)
            try:
                async with closing_stream(stream):
                    while True:
                        began_at = self._monotonic()
                        try:
                            async with self._deadline(call, waited_s):
                                piece = await anext(stream, None)
                        finally:
                            waited_s += self._monotonic() - began_at
                        if piece is None:
                            return
                        at += len(piece)
                        failures = 0
                        if at - moved_from >= PROGRESS_BYTES:
                            moved_from, waited_s = at, 0.0
                        yield piece
            except RetryLater as error:
                failures += 1
                wait_s = self._wait_s(failures, error)
                waited_s += wait_s
                if failures >= self._policy.attempts_max or waited_s >= self._policy.deadline_s:
                    raise
                await self._sleep(wait_s)
            if call.end is not None and at >= call.end and at > call.start:
                return  # everything was read before the stream broke off

    async def _repeated(
        self,
        what: PortCall | str,
        attempt: Callable[[], Awaitable[_Answer]],
        settling: _Settling[_Answer] | None = None,
    ) -> _Answer:
        """Repeat `attempt` until the answer is clear; use `settling` once an answer was lost."""
        async with self._deadline(what):
            ends_at = self._monotonic() + self._policy.deadline_s
            for failures in range(1, self._policy.attempts_max + 1):
                try:
                    return await attempt()
                except RetryLater as error:
                    wait_s = self._wait_s(failures, error)
                    no_time = self._monotonic() + wait_s >= ends_at
                    if no_time or failures == self._policy.attempts_max:
                        done = await settling.look() if settling else None
                        if done is not None:
                            return done
                        raise
                except StrandlineError as error:
                    if failures == 1 or settling is None or not isinstance(error, settling.after):
                        raise
                    done = await self._repeated(f"look after a {what}", settling.look)
                    if done is not None:
                        return done
                    raise
                await self._sleep(wait_s)
        raise AssertionError("the last round returns or raises")

    async def _ours(self, key: str, size: int, crc32c: int) -> ObjectInfo | None:
        """The object at `key` if it has this size and checksum, else None."""
        try:
            info = await self._store.head(key)
            if info.size != size:
                return None
            found = info.crc32c
            if found is None:  # the store keeps no checksum of this object: read it
                found = 0
                stream = self._store.get(key)
                async with closing_stream(stream):
                    async for piece in stream:
                        found = crc32c_of(piece, found)
        except NotFound:
            return None
        return info if found == crc32c else None

    def _wait_s(self, failures: int, error: RetryLater) -> float:
        return self._policy.wait_after_s(error, failures, self._random_fraction())

    @asynccontextmanager
    async def _deadline(self, what: PortCall | str, waited_s: float = 0.0) -> AsyncIterator[None]:
        try:
            if waited_s >= self._policy.deadline_s:
                raise TimeoutError
            async with asyncio.timeout(self._policy.deadline_s - waited_s):
                yield
        except TimeoutError as error:
            raise RetryLater(f"{what} did not end within {self._policy.deadline_s:g} s") from error
