"""Compares the objects of a segment with the lengths and CRC32Cs of the metadata. Runs in a worker.

A wrong object is read a second time, since the error may have happened on the way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, ExpectedObject, OnRead, tell_nobody
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream


async def check_objects(
    job: CheckJob, store: ObjectStore, on_read: OnRead = tell_nobody
) -> CheckResult:
    """Read every byte of the job's objects; the result names the wrong ones. Raises the errors of
    the store except NotFound.
    """
    wrong = []
    for expected in job.objects:
        text = await _wrong(store, expected, on_read)
        if text:
            text = await _wrong(store, expected, on_read)
        if text:
            wrong.append((expected.suffix, text))
    return CheckResult(tuple(wrong))


async def _wrong(store: ObjectStore, expected: ExpectedObject, on_read: OnRead) -> str:
    try:
        size, crc = await _read(store.get(expected.key), expected.size_bytes, on_read)
    except NotFound:
        return f".{expected.suffix} is gone"
    wrong = expected.wrong(size, crc)
    return f".{expected.suffix} has {wrong}" if wrong else ""


async def _read(stream: AsyncIterator[bytes], bytes_max: int, on_read: OnRead) -> tuple[int, int]:
    """The size and CRC32C of the stream, which is read no further once it exceeds `bytes_max`."""
    size = crc = 0
    async with closing_stream(stream) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > bytes_max:
                break
            crc = crc32c(piece, crc)
            on_read(len(piece))
    return size, crc
