"""Uploads a stream of unknown length with parallel parts and bounded memory.

At most `parallel` parts are being sent while one more is filled: `part_bytes * (parallel + 1)`
bytes, for any object size. The checksum of the whole object is combined from the CRC32Cs of its
parts.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_formats.crc32c import Buffer, crc32c_combine
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import InvalidRequest, StrandlineError
from rsm_backends.arguments import PARTS_MAX, shown
from rsm_backends.store import ObjectStore, UploadedPart

ABORT_DEADLINE_S = 30.0
"""The time that a failed upload waits for its abort. `list_uploads` finds uploads that are left."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UploadResult:
    """The stored object's size in bytes and CRC32C."""

    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Part:
    """One part, with the CRC32C that its creator computed.

    `done` is called only when the part is stored: after a failure a connection that is being closed
    may still read `data`.
    """

    data: Buffer
    crc32c: int
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class PartLimits:
    """The size of a part, the number sent at once, and the longest time that an abort may take."""

    part_bytes: int
    parallel: int
    abort_deadline_s: float = ABORT_DEADLINE_S


async def upload_parts(
    store: ObjectStore,
    key: str,
    parts: AsyncIterator[bytes],
    limits: PartLimits,
    *,
    create_only: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> UploadResult:
    """Store the bytes that `parts` yields (pieces of any size) as one object, whole or not at all.

    The rest as in `upload_whole_parts`. Pieces of exactly the size of a part are sent without a
    copy.
    """
    if limits.part_bytes < 1:
        raise InvalidRequest(f"must be at least 1, not {limits.part_bytes}", field="part_bytes")
    return await upload_whole_parts(
        store,
        key,
        _checksummed(_regrouped(parts, limits.part_bytes)),
        parallel=limits.parallel,
        create_only=create_only,
        on_progress=on_progress,
        abort_deadline_s=limits.abort_deadline_s,
    )


async def upload_whole_parts(
    store: ObjectStore,
    key: str,
    parts: AsyncIterator[Part],
    *,
    parallel: int,
    create_only: bool = False,
    on_progress: Callable[[int], None] | None = None,
    abort_deadline_s: float = ABORT_DEADLINE_S,
) -> UploadResult:
    """Store `parts` as one object, whole or not at all.

    A single part is stored by a put. `on_progress` gets the bytes stored so far. On failure or
    cancellation the upload is aborted before the error is raised; the object may exist nevertheless
    if only the answer to its completion was lost. Raises the store's errors and those of `parts`.
    """
    if parallel < 1:
        raise InvalidRequest(f"must be at least 1, not {parallel}", field="parallel")
    report = on_progress if on_progress is not None else _ignore
    first, second = await anext(parts, Part(b"", 0)), await anext(parts, None)
    if second is None:
        data = bytes(first.data)
        await store.put(key, data, crc32c=first.crc32c, create_only=create_only)
        first.done()
        report(len(data))
        return UploadResult(len(data), first.crc32c)
    head = [first, second]
    del first, second
    upload_id = await store.start_multipart(key)
    try:
        uploader = _PartUploader(store, key, upload_id, parallel, report)
        uploaded = await uploader.run(head, parts)
        result = _combined(uploaded)
        await store.complete_multipart(
            key, upload_id, uploaded, crc32c=result.crc32c, create_only=create_only
        )
    except BaseException:
        await _abort(store, key, upload_id, abort_deadline_s)
        raise
    return result


class _PartUploader:
    """Sends the parts of one upload, `parallel` at once."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        upload_id: str,
        parallel: int,
        report: Callable[[int], None],
    ) -> None:
        self._store = store
        self._key = key
        self._upload_id = upload_id
        self._slots = asyncio.Semaphore(parallel)
        self._report = report
        self._stored_bytes = 0
        self._uploaded: list[UploadedPart] = []

    async def run(self, head: list[Part], rest: AsyncIterator[Part]) -> list[UploadedPart]:
        """Upload `head`, which is emptied, and `rest`. The first failure cancels the others."""
        with _first_error():
            async with asyncio.TaskGroup() as group:
                number = 0
                while part := head.pop(0) if head else await anext(rest, None):
                    number += 1
                    if number > PARTS_MAX:
                        raise InvalidRequest(
                            f"{shown(self._key)} needs more than {PARTS_MAX} parts",
                            field="part_bytes",
                        )
                    await self._slots.acquire()
                    group.create_task(self._put(number, part))
                    part = None  # only parts being sent are kept: the memory is bounded
        return sorted(self._uploaded, key=lambda uploaded: uploaded.number)

    async def _put(self, number: int, part: Part) -> None:
        try:
            self._uploaded.append(
                await self._store.put_part(
                    self._key, self._upload_id, number, part.data, crc32c=part.crc32c
                )
            )
        finally:
            self._slots.release()
        self._stored_bytes += len(part.data)
        part.done()
        self._report(self._stored_bytes)


async def _regrouped(pieces: AsyncIterator[bytes], part_bytes: int) -> AsyncIterator[bytes]:
    """Regroup the bytes into parts of exactly `part_bytes`; the last one may be shorter."""
    filling = io.BytesIO()  # returns its bytes without a copy
    filled = 0
    async for piece in pieces:
        if filled == 0 and len(piece) == part_bytes:
            yield piece
            del piece
            continue
        rest = memoryview(piece)
        while filled + len(rest) >= part_bytes:
            filling.write(rest[: part_bytes - filled])
            rest = rest[part_bytes - filled :]
            yield filling.getvalue()
            filling, filled = io.BytesIO(), 0
        filled += filling.write(rest)
        del piece, rest
    if filled:
        yield filling.getvalue()


async def _checksummed(parts: AsyncIterator[bytes]) -> AsyncIterator[Part]:
    async for data in parts:
        yield Part(data, crc32c_of(data))
        del data


def _combined(uploaded: list[UploadedPart]) -> UploadResult:
    size, crc32c = 0, 0
    for part in uploaded:
        size += part.size
        crc32c = crc32c_combine(crc32c, part.crc32c, part.size)
    return UploadResult(size, crc32c)


async def _abort(store: ObjectStore, key: str, upload_id: str, deadline_s: float) -> None:
    """Abort even while being cancelled; a failure is only logged, since the first error counts."""

    async def abort() -> None:
        try:
            async with asyncio.timeout(deadline_s):
                await store.abort_multipart(key, upload_id)
        except (StrandlineError, TimeoutError) as error:
            _log.warning("the failed upload of %s could not be aborted and is left: %s", key, error)

    task = asyncio.create_task(abort())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


@contextmanager
def _first_error() -> Iterator[None]:
    """One error instead of a task group's bundle: ours before others, the earliest first."""
    try:
        yield
    except BaseExceptionGroup as bundle:
        errors = list(_leaves(bundle))
        ours = [error for error in errors if isinstance(error, StrandlineError)]
        raise (ours or errors)[0] from None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _ignore(stored_bytes: int) -> None:
    """Ignore the progress."""
