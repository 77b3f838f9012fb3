"""Objects of a segment compared with what the metadata has of them, byte by byte. Runs in a worker.

What is found wrong is read once more before it is said: a byte that was turned on the way is no
damage of the object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, ExpectedObject
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream


async def check_objects(job: CheckJob, store: ObjectStore) -> CheckResult:
    """Raises what the store raises, NotFound excepted."""
    wrong = []
    for expected in job.objects:
        text = await _wrong(store, expected)
        if text:
            text = await _wrong(store, expected)
        if text:
            wrong.append((expected.suffix, text))
    return CheckResult(tuple(wrong))


async def _wrong(store: ObjectStore, expected: ExpectedObject) -> str:
    try:
        size, crc = await _read(store.get(expected.key), expected.size_bytes)
    except NotFound:
        return f".{expected.suffix} is gone"
    if size != expected.size_bytes:
        more = "more than " if size > expected.size_bytes else ""
        return (
            f".{expected.suffix} has {more}{min(size, expected.size_bytes)} bytes, not "
            f"{expected.size_bytes}"
        )
    if crc != expected.crc32c:
        return f".{expected.suffix} has the CRC32C {crc:08x}, not {expected.crc32c:08x}"
    return ""


async def _read(stream: AsyncIterator[bytes], bytes_max: int) -> tuple[int, int]:
    """Size and CRC32C of what comes; it is left as soon as it is too long."""
    size = crc = 0
    async with closing_stream(stream) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > bytes_max:
                break
            crc = crc32c(piece, crc)
    return size, crc
