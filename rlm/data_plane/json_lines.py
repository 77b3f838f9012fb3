"""Writes records as JSON, one object per line.

Keys and values are text if they are valid UTF-8, else base64; an encoding field says which:
    {"offset":7,"timestamp_ms":1700000000000,"key":"a","key_encoding":"utf-8",
     "value":"/w==","value_encoding":"base64","headers":[{"key":"h","value":null,"encoding":null}]}

A few bytes may decompress to many, and a byte may take six in JSON. So a large record is sent in
pieces, and only a few large batches are decompressed in memory at once.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import AsyncIterator, Iterator

import orjson

from kafka_formats.batch_scan import ScannedBatch
from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.record_batch import (
    DECOMPRESSED_BYTES_MAX,
    Record,
    decode_records,
    records_within,
)

LINES_BYTES = 64 * 1024
"""Approximate size of the pieces in which lines are returned."""

SMALL_BATCH_BYTES = 1024 * 1024
"""Limit of a batch's decompressed bytes that each read may have in memory."""

LARGE_BATCHES_MAX = 2
"""Limit of the larger batches (up to `DECOMPRESSED_BYTES_MAX`) in memory, for all reads
together.
"""

LARGE_BATCH_WAIT_S = 20.0
"""Deadline of a read's wait for its turn with a large batch, in seconds."""

_SLICE_BYTES = 48 * 1024
"""Bytes that are escaped at once; a multiple of 3, so that the base64 of slices can be joined."""


class JsonLines:
    """Turns batches into lines for all reads of a worker, and limits their memory."""

    def __init__(self, *, wait_s: float = LARGE_BATCH_WAIT_S) -> None:
        self._large = asyncio.Semaphore(LARGE_BATCHES_MAX)
        self._wait_s = wait_s

    async def of(
        self, batch: ScannedBatch, *, from_offset: int, source: str
    ) -> AsyncIterator[bytes]:
        """The batch's records from `from_offset` on; a piece may end anywhere.

        Raises CorruptData if the batch is malformed, InvalidRequest(format) if it decompresses to
        more than `DECOMPRESSED_BYTES_MAX`, RetryLater if other reads keep their large batches too
        long.
        """
        data = _records(batch, source, SMALL_BATCH_BYTES)
        if data is not None:
            for piece in lines_of(data, batch, from_offset, source):
                yield piece
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._large.acquire()
        except TimeoutError:
            raise RetryLater(
                f"the batch at offset {batch.header.base_offset} is large, and other reads have "
                f"{LARGE_BATCHES_MAX} large batches in work: try again, or use format=batches"
            ) from None
        try:
            data = _records(batch, source, DECOMPRESSED_BYTES_MAX)
            if data is None:
                raise InvalidRequest(
                    f"the batch at offset {batch.header.base_offset} decompresses to more than "
                    f"{DECOMPRESSED_BYTES_MAX} bytes, too many for JSON: use format=batches",
                    field="format",
                )
            for piece in lines_of(data, batch, from_offset, source):
                yield piece
        finally:
            self._large.release()


def _records(batch: ScannedBatch, source: str, bytes_max: int) -> bytes | None:
    return records_within(
        batch.data, batch.header, source=source, position=batch.position, bytes_max=bytes_max
    )


def lines_of(data: bytes, batch: ScannedBatch, from_offset: int, source: str) -> Iterator[bytes]:
    """The JSON lines of a batch whose decompressed records are `data`; see `JsonLines.of`."""
    held: list[bytes] = []
    held_bytes = 0
    for record in decode_records(data, batch.header, source=source, position=batch.position):
        if record.offset < from_offset:
            continue
        for piece in json_line(record):
            held.append(piece)
            held_bytes += len(piece)
            if held_bytes >= LINES_BYTES:
                yield b"".join(held)
                held.clear()
                held_bytes = 0
    if held:
        yield b"".join(held)


def json_line(record: Record) -> Iterator[bytes]:
    """The line of one record, newline included; in several pieces if it is large."""
    if _size(record) > _SLICE_BYTES:
        yield from _line_in_pieces(record)
        return
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    headers = []
    for name, raw in record.headers:
        text, encoding = _text(raw)
        headers.append({"key": name, "value": text, "encoding": encoding})
    yield orjson.dumps(
        {
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": key,
            "key_encoding": key_encoding,
            "value": value,
            "value_encoding": value_encoding,
            "headers": headers,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, raw in record.headers:
        size += len(name) + len(raw or b"")
    return size


def _text(raw: bytes | None) -> tuple[str | None, str | None]:
    if raw is None:
        return None, None
    try:
        return raw.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode(), "base64"


def _line_in_pieces(record: Record) -> Iterator[bytes]:
    """The line of a large record, in the same form as `json_line` makes that of a small one."""
    yield b'{"offset":%d,"timestamp_ms":%d,"key":' % (record.offset, record.timestamp_ms)
    yield from _text_in_pieces(record.key, b',"key_encoding":')
    yield b',"value":'
    yield from _text_in_pieces(record.value, b',"value_encoding":')
    yield b',"headers":['
    for number, (name, raw) in enumerate(record.headers):
        yield b'{"key":' if number == 0 else b',{"key":'
        yield from _slices_of_text(name.encode())
        yield b',"value":'
        yield from _text_in_pieces(raw, b',"encoding":')
        yield b"}"
    yield b"]}\n"


def _text_in_pieces(raw: bytes | None, then: bytes) -> Iterator[bytes]:
    """A JSON value, then `then`, then the value's encoding."""
    if raw is None:
        yield b"null" + then + b"null"
    elif _is_utf8(raw):
        yield from _slices_of_text(raw)
        yield then + b'"utf-8"'
    else:
        yield b'"'
        for at in range(0, len(raw), _SLICE_BYTES):
            yield base64.b64encode(raw[at : at + _SLICE_BYTES])
        yield b'"' + then + b'"base64"'


def _slices_of_text(raw: bytes) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    yield b'"'
    for at in range(0, len(raw), _SLICE_BYTES):
        yield orjson.dumps(decoder.decode(raw[at : at + _SLICE_BYTES]))[1:-1]
    yield b'"'


def _is_utf8(raw: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(raw), _SLICE_BYTES):
            decoder.decode(raw[at : at + _SLICE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
