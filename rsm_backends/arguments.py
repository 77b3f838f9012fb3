"""Checks of arguments that every backend makes in the same way, before a byte is sent.

Keys must fit the most restrictive of the stores (S3's 1024 bytes, no `.` or `..` or empty part, no
character that XML cannot contain), so that a key accepted by one backend does not fail on another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from kafka_formats.crc32c import Buffer, crc32c_combine
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import Conflict, CorruptData, InvalidRequest
from rsm_backends.store import UploadedPart

KEY_BYTES_MAX = 1024
PAGE_KEYS_MAX = 1000
PARTS_MAX = 10_000
"""The highest part number of a multipart upload (AWS S3 multipart limits)."""

_NOT_KEPT = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")
"""Control characters, and characters that XML cannot express."""


def check_key(key: str) -> None:
    """Raise InvalidRequest unless `key` names an object on every backend."""
    if not key:
        raise InvalidRequest("an object key must not be empty", field="key")
    _check_text(key, field="key")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise InvalidRequest(
            f"{shown(key)} has an empty part or one that is '.' or '..'", field="key"
        )


def check_version_id(version_id: str) -> None:
    """Raise InvalidRequest for an empty id: a store would use the object's newest version."""
    if not version_id:
        raise InvalidRequest("a version's id must not be empty", field="version_id")


def check_prefix(prefix: str) -> None:
    """Raise InvalidRequest unless `prefix` may start a key; an empty one lists everything."""
    _check_text(prefix, field="prefix")


def check_range(start: int, end: int | None) -> None:
    """Raise InvalidRequest unless 0 <= start <= end."""
    if start < 0:
        raise InvalidRequest(f"a range cannot start at {start}", field="start")
    if end is not None and end < start:
        raise InvalidRequest(f"a range from {start} cannot end at {end}", field="end")


def check_limit(limit: int) -> None:
    """Raise InvalidRequest unless `limit` is a legal number of keys for a page."""
    if not 1 <= limit <= PAGE_KEYS_MAX:
        raise InvalidRequest(f"must be 1 to {PAGE_KEYS_MAX}, not {limit}", field="limit")


def check_part_number(number: int) -> None:
    """Raise InvalidRequest unless `number` is a legal part number."""
    if not 1 <= number <= PARTS_MAX:
        raise InvalidRequest(f"must be 1 to {PARTS_MAX}, not {number}", field="number")


def check_parts(parts: Sequence[UploadedPart]) -> None:
    """Raise InvalidRequest unless `parts` is not empty and ascends by number."""
    if not parts:
        raise InvalidRequest("an upload needs at least one part to complete", field="parts")
    numbers = [part.number for part in parts]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise InvalidRequest("part numbers must ascend, each once", field="parts")


def check_crc32c(data: Buffer, crc32c: int, *, source: str) -> None:
    """Raise CorruptData unless `data` has the checksum that its sender computed.

    Some stores ignore the checksum header; this check keeps the port's promise on them too, and
    notices memory damage between reading and sending.
    """
    actual = crc32c_of(data)
    if actual != crc32c:
        raise CorruptData(
            f"the bytes to write have CRC32C {actual:08x}, but their sender computed {crc32c:08x}",
            source=source,
            position=0,
        )


def check_combined_crc32c(parts: Sequence[UploadedPart], crc32c: int, *, source: str) -> None:
    """Raise CorruptData unless the parts' checksums add up to that of the whole object."""
    combined = 0
    for part in parts:
        combined = crc32c_combine(combined, part.crc32c, part.size)
    if combined != crc32c:
        raise CorruptData(
            f"the parts combine to CRC32C {combined:08x}, but the object should have {crc32c:08x}",
            source=source,
            position=0,
        )


def changed(key: str) -> Conflict:
    """The error for a replacement of an object that was changed or deleted in between."""
    return Conflict(
        f"the object {shown(key)} was changed or deleted meanwhile, and nothing was written: read "
        "it again, then decide",
        reason="CHANGED",
    )


def shown(key: str) -> str:
    """The key for messages: quoted, escaped and cut, since a key may come from anywhere."""
    return ascii(key if len(key) <= 200 else key[:200] + "…")


def _check_text(text: str, *, field: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{shown(text)} is not valid Unicode", field=field) from None
    if size > KEY_BYTES_MAX:
        raise InvalidRequest(f"{size} bytes are too long, at most {KEY_BYTES_MAX}", field=field)
    if _NOT_KEPT.search(text):
        raise InvalidRequest(
            f"{shown(text)} has a control character, which stores do not keep: leave it out",
            field=field,
        )
