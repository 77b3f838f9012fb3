"""Checks RocksDB's MANIFEST before RocksDB reads it: some damage there makes RocksDB read forever.

The format is that of RocksDB's log files: blocks of 32 KiB; in them records of a masked CRC32C (4
bytes), a length (2), a type (1) and the payload, all little-endian. RocksDB was seen to hang on
bytes after the last record whose type is one of the recyclable kinds, which a MANIFEST never has.
"""

from __future__ import annotations

import struct
from pathlib import Path

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData

BLOCK_BYTES = 32 * 1024
_HEADER = struct.Struct("<IHB")
_TYPES = range(1, 5)
"""Full, first, middle, last."""
_MASK_DELTA = 0xA282EAD8


def check_manifest(view: Path) -> None:
    """Raise CorruptData unless CURRENT names a MANIFEST of complete records. A torn tail is
    accepted: a record cut off by the file's end, or zeros to the end of a block. A view without
    CURRENT is new.
    """
    try:
        name = (view / "CURRENT").read_text("ascii").removesuffix("\n")
    except FileNotFoundError:
        return
    except ValueError as error:
        raise CorruptData("not text", source=str(view / "CURRENT")) from error
    if "/" in name or not name.startswith("MANIFEST-"):
        raise CorruptData(f"it names no MANIFEST: {name[:40]!r}", source=str(view / "CURRENT"))
    path = view / name
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CorruptData("CURRENT names it, but it is gone", source=str(path)) from error
    check_records(data, source=str(path))


def check_records(data: bytes, *, source: str) -> None:
    """Check the bytes of a MANIFEST; the errors are those of `check_manifest`."""
    at = 0
    while at < len(data):
        room = BLOCK_BYTES - at % BLOCK_BYTES
        if room < _HEADER.size:
            at += room  # a block's rest that no header fits in is filled with zeros
            continue
        if len(data) - at < _HEADER.size:
            return
        stored, length, kind = _HEADER.unpack_from(data, at)
        start, end = at + _HEADER.size, at + _HEADER.size + length
        if kind == 0 and length == 0:
            at += room  # like RocksDB: sectors that were never written, even if later ones were
            continue
        if kind not in _TYPES or length > room - _HEADER.size:
            raise CorruptData(
                f"record of type {kind} and {length} bytes", source=source, position=at
            )
        if end > len(data):
            return
        if stored != _masked(crc32c(data[start - 1 : end])):
            raise CorruptData("a record fails its checksum", source=source, position=at)
        at = end


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
