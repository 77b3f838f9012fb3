"""Decompresses intact batches in one library call, with the same bound as the careful reader.

`kafka_formats.compression` works in small steps, so that hostile input stays within its bounds,
which costs up to half the speed. Here a batch gets one call with a limit on its output. A batch
that fails, because it is damaged, too large for the limit or merely unusual, goes through the
careful reader, which alone decides what the error is.

zstd writes into a reused buffer: for a frame that does not give its size, memory for the limit
would be mapped and freed for every batch, at a third of the speed.
"""

from __future__ import annotations

import zlib

import lz4.frame  # type: ignore[import-untyped]  # the package has no types
import zstandard

from kafka_formats import compression
from kafka_formats.compression import Codec
from kafka_formats.crc32c import Buffer

_GZIP_WBITS = 31
_OUTPUT_BYTES_MIN = 1 << 20
_EXPANSION = 16
"""Largest expansion, as a multiple of a batch's size; one that expands more goes the careful way.
"""

_ANNOUNCED_BYTES_MAX = 128 << 10
"""A frame that announces at most this gets its own memory, too little to be mapped each time."""

_ZSTD_MAGIC = 0xFD2FB528.to_bytes(4, "little")
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_ZSTD_RLE_BLOCK = 1


class QuickDecompressor:
    """Decompresses batches; for one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()
        self._output = bytearray()

    def decompress(self, codec: Codec, data: Buffer, *, bytes_max: int) -> Buffer:
        """Decompress as `kafka_formats.compression.decompress` does; uncompressed data is not
        copied. The result is valid until the next call.
        """
        if codec is Codec.NONE and len(data) <= bytes_max:
            return data
        found = self._at_once(codec, data, min(bytes_max, self._limit(data)))
        if found is None:
            return compression.decompress(codec, data, bytes_max=bytes_max)
        return found

    def _limit(self, data: Buffer) -> int:
        return max(_OUTPUT_BYTES_MIN, _EXPANSION * len(data))

    def _at_once(self, codec: Codec, data: Buffer, limit: int) -> Buffer | None:
        match codec:
            case Codec.GZIP:
                return _gunzip(data, limit)
            case Codec.LZ4:
                return _read_lz4(data, limit)
            case Codec.ZSTD:
                return self._read_zstd(data, limit)
        return None  # the careful reader of snappy is as quick: its blocks announce their sizes

    def _read_zstd(self, data: Buffer, limit: int) -> Buffer | None:
        try:
            if 0 < zstandard.frame_content_size(data) <= min(limit, _ANNOUNCED_BYTES_MAX):
                return self._zstd.decompress(data, max_output_size=limit, allow_extra_data=False)
            bound = zstd_frame_bytes_max(data)
            if bound is None or bound > limit:
                return None
            if len(self._output) <= bound:  # with spare room the library reads to the frame's end
                self._output = bytearray(bound + 1)
            output = memoryview(self._output)
            with self._zstd.stream_reader(data) as frame:
                return output[: frame.readinto(output)]
        except zstandard.ZstdError:
            return None


def zstd_frame_bytes_max(data: Buffer) -> int | None:
    """The most bytes a zstd frame can hold, from its blocks; None if `data` is not one whole frame.

    RFC 8878, 3.1.1: a header, blocks behind 3 bytes each, the last of which is marked, a checksum.
    """
    if len(data) < 6 or data[:4] != _ZSTD_MAGIC:
        return None
    flags = data[4]
    single_segment = flags >> 5 & 1
    at = 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + (single_segment, 2, 4, 8)[flags >> 6]
    bound, last = 0, 0
    while not last:
        if at + 3 > len(data):
            return None
        head = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
        bound += _ZSTD_BLOCK_BYTES_MAX
    return bound if at + 4 * (flags >> 2 & 1) == len(data) else None


def _gunzip(data: Buffer, limit: int) -> Buffer | None:
    member = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        found = member.decompress(data, limit)
    except zlib.error:
        return None
    return found if member.eof and not member.unused_data else None


def _read_lz4(data: Buffer, limit: int) -> Buffer | None:
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        found: bytes = frame.decompress(data, max_length=limit)
    except RuntimeError:
        return None
    return found if frame.eof and not frame.unused_data else None
