"""The custom metadata of a segment: the name of its store, lengths and CRC32C of its objects.

A Kafka broker deletes an upload whose custom metadata exceeds 128 bytes and stops the partition
(`remote.log.metadata.custom.metadata.max.bytes`); ours stays below 96. Layout, big-endian:

    0  2  magic `SL`
    2  1  version, 1
    3  1  length n of the store name, 1 to 40
    4  n  store name, UTF-8
    .. 12 .log:          int64 bytes, uint32 CRC32C
    .. 12 .indexes:      int64 bytes, uint32 CRC32C
    .. 12 .rsm-manifest: int64 bytes, uint32 CRC32C
    .. 4  uint32 CRC32C of all bytes before
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest

STORE_NAME_BYTES_MAX = 40
CUSTOM_METADATA_BYTES_MAX = 96

_HEAD = struct.Struct(">2sBB")
_OBJECTS = struct.Struct(">qIqIqI")
_CHECK = struct.Struct(">I")
_MAGIC = b"SL"
_VERSION = 1
_SOURCE = "custom metadata"


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """Lengths in bytes and CRC32C of a segment's three objects, and the name of their store."""

    store: str
    log_bytes: int
    log_crc32c: int
    indexes_bytes: int
    indexes_crc32c: int
    manifest_bytes: int
    manifest_crc32c: int

    def encode(self) -> bytes:
        """The bytes for COPY_SEGMENT_FINISHED, fewer than 96."""
        name = check_store_name(self.store)
        objects = _OBJECTS.pack(*astuple(self)[1:])
        body = _HEAD.pack(_MAGIC, _VERSION, len(name)) + name + objects
        return body + _CHECK.pack(crc32c(body))

    @staticmethod
    def is_ours(data: bytes) -> bool:
        """True for bytes that begin like Strandline's; `decode` verifies the rest."""
        return data[:2] == _MAGIC

    @classmethod
    def decode(cls, data: bytes) -> CustomMetadata:
        """Decode the bytes that `encode` wrote; CorruptData for anything else."""
        if len(data) < _HEAD.size or not cls.is_ours(data):
            raise _corrupt("not written by Strandline (a different RemoteStorageManager's?)", 0)
        _, version, name_bytes = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise _corrupt(f"version {version} is unknown; this node is too old for it", 2)
        end = _HEAD.size + name_bytes + _OBJECTS.size
        if not 1 <= name_bytes <= STORE_NAME_BYTES_MAX or len(data) != end + _CHECK.size:
            raise _corrupt(f"{len(data)} bytes do not fit a name of {name_bytes} bytes", 3)
        if _CHECK.unpack_from(data, end)[0] != crc32c(data[:end]):
            raise _corrupt("checksum mismatch", end)
        sizes = _OBJECTS.unpack_from(data, _HEAD.size + name_bytes)
        if min(sizes) < 0:
            raise _corrupt("negative length", _HEAD.size + name_bytes)
        try:
            store = data[_HEAD.size : _HEAD.size + name_bytes].decode()
        except UnicodeDecodeError:
            raise _corrupt("the store name is not UTF-8", _HEAD.size) from None
        if not store.isprintable():
            raise _corrupt("the store name is not printable", _HEAD.size)
        return cls(store, *sizes)


def custom_of(custom_metadata: bytes | None) -> CustomMetadata | None:
    """A row's custom metadata if Strandline wrote it; None if absent, damaged or not ours."""
    try:
        return None if custom_metadata is None else CustomMetadata.decode(custom_metadata)
    except CorruptData:
        return None


def check_store_name(name: str) -> bytes:
    """The name in UTF-8; InvalidRequest if it does not fit custom metadata."""
    raw = name.encode("utf-8", "surrogatepass")
    if not 1 <= len(raw) <= STORE_NAME_BYTES_MAX or not name.isprintable():
        raise InvalidRequest(
            f"{name[:60]!r} must be 1 to {STORE_NAME_BYTES_MAX} bytes of printable text",
            field="store",
        )
    return raw


def _corrupt(message: str, position: int) -> CorruptData:
    return CorruptData(message, source=_SOURCE, position=position)
