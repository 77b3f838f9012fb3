"""Recomputed checksums: what was changed reaches the parser that stands behind the check."""

from __future__ import annotations

import base64
import struct

from api.http import cursors
from kafka_formats.crc32c import crc32c
from kafka_formats.record_batch import HEADER_BYTES, LOG_OVERHEAD

_BATCHES_MAX = 1_000
_CRC_AT, _CRC_FROM = 17, 21


def batches(data: bytes) -> bytes:
    """The right CRC in every batch whose announced length is there."""
    repaired = bytearray(data)
    at = 0
    for _ in range(_BATCHES_MAX):
        if len(repaired) - at < HEADER_BYTES:
            break
        end = at + LOG_OVERHEAD + struct.unpack_from(">i", repaired, at + 8)[0]
        if not at + HEADER_BYTES <= end <= len(repaired):
            break
        struct.pack_into(
            ">I", repaired, at + _CRC_AT, crc32c(bytes(repaired[at + _CRC_FROM : end]))
        )
        at = end
    return bytes(repaired)


def whole_batch(data: bytes) -> bytes:
    """One batch that fills the data: magic 2, its length and its CRC right."""
    if len(data) < HEADER_BYTES:
        return data
    repaired = bytearray(data)
    struct.pack_into(">i", repaired, 8, len(repaired) - LOG_OVERHEAD)
    repaired[16] = 2
    return batches(bytes(repaired))


def producer_snapshot(data: bytes) -> bytes:
    """Version 1 and the CRC of what follows."""
    return struct.pack(">hI", 1, crc32c(data[6:])) + data[6:]


def trailing_crc(data: bytes) -> bytes:
    """Custom metadata: the last four bytes are the CRC of all before."""
    return data[:-4] + struct.pack(">I", crc32c(data[:-4]))


def cursor(listing: str, payload: bytes) -> bytes:
    """A cursor of `listing` with this payload behind the right check value."""
    raw = bytes((cursors.CURSOR_VERSION,)) + cursors._check(listing, {}, payload) + payload
    return base64.urlsafe_b64encode(raw).rstrip(b"=")
