"""Snappy as Kafka uses it: the stream framing of snappy-java, or one raw block.

A stream is an 8-byte magic, two int32 versions, then blocks of int32 length and raw snappy. Java
clients write streams; some others write raw blocks, and Kafka's reader accepts both. Streams may be
concatenated: the magic then stands where a length would, and no length has its first bit set.
"""

from __future__ import annotations

import struct

import cramjam

from kafka_formats.crc32c import Buffer

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)  # version, and the oldest version that can read it
_LENGTH = struct.Struct(">i")
_BLOCK_BYTES = 32 << 10
# A copy element of 3 bytes gives at most 64: no valid block announces more than that ratio.
_EXPANSION_MAX = 22


class CompressionError(ValueError):
    """Compressed bytes are damaged, or hold more than the caller allows.

    Internal to `kafka_formats`: `record_batch` turns it into CorruptData with file and position.
    """


class TooMuchError(CompressionError):
    """Compressed bytes hold more than the caller allows; they may be damaged as well."""


def compress(data: bytes) -> bytes:
    """A snappy-java stream of 32 KiB blocks, as the Java client writes it."""
    stream = bytearray(_HEADER)
    view = memoryview(data)
    for at in range(0, len(data), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _BLOCK_BYTES]))
        stream += _LENGTH.pack(len(block)) + block
    return bytes(stream)


def decompress(data: Buffer, *, bytes_max: int) -> bytes:
    """Read a stream or a raw block of at most `bytes_max` decompressed bytes."""
    view = memoryview(data)
    if view[: len(_MAGIC)] != _MAGIC:
        return _read_block(view, bytes_max)
    output = bytearray()
    at = 0
    while at < len(view):
        if view[at : at + len(_MAGIC)] == _MAGIC:
            at += len(_HEADER)
            if at > len(view):
                raise CompressionError("the snappy stream ends inside its header")
            continue
        if len(view) - at < _LENGTH.size:
            raise CompressionError("the snappy stream ends inside a block length")
        length: int = _LENGTH.unpack_from(view, at)[0]
        at += _LENGTH.size
        if not 0 < length <= len(view) - at:
            raise CompressionError(
                f"a snappy block announces {length} bytes and {len(view) - at} are left"
            )
        output += _read_block(view[at : at + length], bytes_max - len(output))
        at += length
    return bytes(output)


def _read_block(block: memoryview, bytes_max: int) -> bytes:
    try:
        announced = cramjam.snappy.decompress_raw_len(block)
        if announced > bytes_max:
            raise TooMuchError(f"{announced} bytes announced, over the limit of {bytes_max}")
        if announced > len(block) * _EXPANSION_MAX:
            raise CompressionError(f"{len(block)} bytes of snappy cannot give {announced}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"the snappy block is damaged ({error})") from error
