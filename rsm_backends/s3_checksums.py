"""CRC32C as S3 writes it: base64 in headers and fields, and composite for an upload's parts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_formats.crc32c import crc32c as crc32c_of
from rsm_backends.store import UploadedPart

_CRC32C_BYTES = 4


def encoded(crc32c: int) -> str:
    """The checksum as a header's value."""
    return base64.b64encode(crc32c.to_bytes(_CRC32C_BYTES, "big")).decode()


def composite(parts: Sequence[UploadedPart]) -> int:
    """S3's composite checksum: the CRC32C of the parts' concatenated checksums."""
    return crc32c_of(b"".join(part.crc32c.to_bytes(_CRC32C_BYTES, "big") for part in parts))


def answered(answer: Mapping[str, Any]) -> int | None:
    """The full object's CRC32C in an answer; None if it is missing or composite. ValueError if it
    is not a CRC32C.
    """
    text = answer.get("ChecksumCRC32C")
    return None if not text or _is_composite(answer, text) else _decoded(text)


def answered_composite(answer: Mapping[str, Any]) -> int | None:
    """The composite CRC32C in an answer, or None. ValueError as in `answered`."""
    text = answer.get("ChecksumCRC32C")
    return _decoded(text.partition("-")[0]) if text and _is_composite(answer, text) else None


def _is_composite(answer: Mapping[str, Any], text: str) -> bool:
    return "-" in text or answer.get("ChecksumType") == "COMPOSITE"


def _decoded(text: str) -> int:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        data = b""
    if len(data) != _CRC32C_BYTES:
        raise ValueError("not a CRC32C in base64")
    return int.from_bytes(data, "big")
