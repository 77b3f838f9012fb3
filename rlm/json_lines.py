"""Records as JSON, one object a line.

Keys and values are text where they are UTF-8 and base64 otherwise; the field beside says which:

    {"offset":7,"timestamp_ms":1700000000000,"key":"a","key_encoding":"utf-8",
     "value":"/w==","value_encoding":"base64","headers":[{"key":"h","value":null,"encoding":null}]}
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import orjson

from kafka_formats.batch_scan import ScannedBatch
from kafka_formats.record_batch import Record, iter_records

LINES_BYTES = 64 * 1024
"""Lines are handed on in pieces of about this size."""


def json_lines(batch: ScannedBatch, *, from_offset: int, source: str) -> Iterator[bytes]:
    """The batch's records at or above `from_offset`, in whole lines; CorruptData if malformed."""
    lines: list[bytes] = []
    held_bytes = 0
    for record in iter_records(batch.data, source=source, position=batch.position):
        if record.offset < from_offset:
            continue
        line = json_line(record)
        lines.append(line)
        held_bytes += len(line)
        if held_bytes >= LINES_BYTES:
            yield b"".join(lines)
            lines.clear()
            held_bytes = 0
    if lines:
        yield b"".join(lines)


def json_line(record: Record) -> bytes:
    """One record, newline included."""
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    headers = []
    for name, raw in record.headers:
        text, encoding = _text(raw)
        headers.append({"key": name, "value": text, "encoding": encoding})
    return orjson.dumps(
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


def _text(raw: bytes | None) -> tuple[str | None, str | None]:
    if raw is None:
        return None, None
    try:
        return raw.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode(), "base64"
