"""The transforms that Aiven's plug-in applied to a segment, by its manifest. Pure.

`.log` is cut into chunks of `original_chunk_bytes` (the last may be shorter). Each is compressed on
its own (one zstd frame), then encrypted on its own (AES-GCM: 12 bytes of IV before it, 16 bytes of
tag after it). Indexes are encrypted as one chunk each, and never compressed.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafka_formats.compression import Codec, CompressionError, decompress
from rlm.format.json_fields import Fields

ORIGINAL_CHUNK_BYTES_MAX = 256 * 1024 * 1024
"""The largest chunk that is decoded; a reader keeps one in memory. Aiven recommends 4 MiB."""

CHUNKS_MAX = 1_048_576

INDEX_BYTES_MAX = 256 * 1024 * 1024
"""The largest index: that of a segment of 2 GiB with an entry for each batch is smaller."""

_ENCRYPTION_BYTES = 28
_SIZES_HEAD = struct.Struct(">iiB")
_INT32 = struct.Struct(">i")


class Chunk(NamedTuple):
    """Bytes [`position`, `position` + `stored_bytes`) of the object, which contain bytes
    [`original_position`, `original_position` + `original_bytes`) of the segment.
    """

    position: int
    stored_bytes: int
    original_position: int
    original_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The chunks of a `.log` object. `stored_sizes` None: all are equal, except the last."""

    original_chunk_bytes: int
    original_bytes: int
    stored_chunk_bytes: int
    last_stored_bytes: int
    stored_sizes: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        return -(-self.original_bytes // self.original_chunk_bytes)

    @property
    def stored_bytes(self) -> int:
        """The object's length in bytes."""
        if self.stored_sizes is not None:
            return sum(self.stored_sizes)
        return max(0, self.count - 1) * self.stored_chunk_bytes + self.last_stored_bytes

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """The chunks with bytes [start, end) of the segment; `end` None: up to the last one."""
        first = start // self.original_chunk_bytes
        behind = self.count if end is None else -(-end // self.original_chunk_bytes)
        sizes = self.stored_sizes
        position = first * self.stored_chunk_bytes if sizes is None else sum(sizes[:first])
        for number in range(first, min(behind, self.count)):
            if sizes is not None:
                stored = sizes[number]
            else:
                is_last = number == self.count - 1
                stored = self.last_stored_bytes if is_last else self.stored_chunk_bytes
            original = number * self.original_chunk_bytes
            yield Chunk(
                position,
                stored,
                original,
                min(self.original_chunk_bytes, self.original_bytes - original),
            )
            position += stored


def plain_chunks(log_bytes: int, chunk_bytes: int) -> ChunkIndex:
    """The chunks of a log that was stored untransformed."""
    last = log_bytes % chunk_bytes or min(log_bytes, chunk_bytes)
    return ChunkIndex(chunk_bytes, log_bytes, chunk_bytes, last)


@dataclass(frozen=True, slots=True)
class Encryption:
    """AES-256-GCM; the data key is wrapped by RSA-OAEP (SHA3-512, MGF1) under `key_id`."""

    key_id: str
    wrapped_data_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class Transforms:
    """The steps to get a segment's bytes: decrypt, then decompress, each chunk on its own."""

    chunks: ChunkIndex
    compressed: bool
    encryption: Encryption | None


def parse_transforms(top: Fields) -> Transforms | None:
    """Parse the transforms in a manifest's top level; None if there are none. CorruptData names a
    wrong field.
    """
    encryption = top.optional_object("encryption")
    compressed = top.boolean("compression")
    if encryption is None and not compressed:
        return None
    chunks = _parse_chunk_index(top.object("chunkIndex"))
    _check_sizes(chunks, top, compressed=compressed, encrypted=encryption is not None)
    return Transforms(chunks, compressed, None if encryption is None else _parse_key(encryption))


def _parse_chunk_index(fields: Fields) -> ChunkIndex:
    original_bytes = fields.integer("originalFileSize")
    chunk_bytes = fields.integer("originalChunkSize", minimum=1, maximum=ORIGINAL_CHUNK_BYTES_MAX)
    if (count := -(-original_bytes // chunk_bytes)) > CHUNKS_MAX:
        raise fields.wrong("originalChunkSize", f"makes {count} chunks, more than {CHUNKS_MAX}")
    match fields.text("type"):
        case "fixed":
            return ChunkIndex(
                chunk_bytes,
                original_bytes,
                fields.integer("transformedChunkSize"),
                fields.integer("finalTransformedChunkSize"),
            )
        case "variable":
            sizes = _parse_sizes(fields, count)
            last = sizes[-1] if sizes else 0
            return ChunkIndex(chunk_bytes, original_bytes, 0, last, sizes)
        case other:
            raise fields.wrong("type", f"{other[:20]!r} is neither fixed nor variable")


def _parse_sizes(fields: Fields, count: int) -> tuple[int, ...]:
    """Decode `transformedChunks`: base64 of zstd of count, lowest size, bytes per value, the
    differences from the lowest size (all but the last chunk), and the last size. With fewer than
    two values there is no lowest size.
    """
    name = "transformedChunks"
    try:
        packed = base64.b64decode(fields.text(name), validate=True)
        data = decompress(Codec.ZSTD, packed, bytes_max=_SIZES_HEAD.size + 4 * (count + 1))
    except (binascii.Error, ValueError, CompressionError) as error:
        raise fields.wrong(name, f"is not a compressed list of {count} sizes: {error}") from None
    if len(data) < _INT32.size or (found := _INT32.unpack_from(data)[0]) != count:
        raise fields.wrong(name, f"does not have {count} sizes, as the file's length requires")
    if found <= 1:
        if len(data) != _INT32.size * (1 + found):
            raise fields.wrong(name, f"{len(data)} bytes do not hold {found} sizes")
        return tuple(_INT32.unpack_from(data, _INT32.size) if found else ())
    if len(data) < _SIZES_HEAD.size:
        raise fields.wrong(name, "ends within its header")
    _, lowest, width = _SIZES_HEAD.unpack_from(data)
    end = _SIZES_HEAD.size + width * (found - 1)
    if width > _INT32.size or len(data) != end + _INT32.size:
        raise fields.wrong(name, f"{len(data)} bytes do not hold {found} sizes")
    starts = (_SIZES_HEAD.size + width * number for number in range(found - 1))
    sizes = (lowest + int.from_bytes(data[at : at + width], "big") for at in starts)
    return (*sizes, _INT32.unpack_from(data, end)[0])


def _check_sizes(chunks: ChunkIndex, top: Fields, *, compressed: bool, encrypted: bool) -> None:
    """Raise CorruptData for stored chunks larger or smaller than the transforms can make them."""
    added = _ENCRYPTION_BYTES if encrypted else 0
    largest = chunks.original_chunk_bytes + added
    if compressed:  # the bound of zstd is a little lower
        largest += chunks.original_chunk_bytes // 128 + 1_024
    sizes = chunks.stored_sizes or (chunks.stored_chunk_bytes, chunks.last_stored_bytes)
    if chunks.count <= 1:
        sizes = sizes[-1:] if chunks.count else ()
    for size in sizes:
        if not added < size <= largest:
            raise top.wrong(
                "chunkIndex", f"has a stored chunk of {size} bytes, not {added + 1} to {largest}"
            )
    if not compressed and chunks.stored_bytes != chunks.original_bytes + added * chunks.count:
        raise top.wrong(
            "chunkIndex", "has stored chunks that do not fit the original's with IV and tag"
        )


def _parse_key(fields: Fields) -> Encryption:
    key_id, colon, wrapped = fields.text("dataKey").partition(":")
    if not key_id or not colon:
        raise fields.wrong("dataKey", "is not the id of a key pair, a colon and a wrapped key")
    return Encryption(
        key_id, _base64(fields, "dataKey", wrapped), _base64(fields, "aad", fields.text("aad"))
    )


def _base64(fields: Fields, name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise fields.wrong(name, "is not base64") from None
