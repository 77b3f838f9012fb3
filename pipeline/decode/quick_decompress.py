"""Decompression of sound batches in one call of a library, bounded like the careful one.

`kafka_formats.compression` feeds and takes small steps, so that hostile input stays within its
bounds, and that costs up to half the speed. Here a batch gets one call with a limit on its output.
Whatever does not come out right, damaged, too large for the limit or merely unusual, goes through
the careful reader, which alone decides what is wrong.
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
"""Of what a batch may become here, times its size; what becomes more takes the careful way."""


class QuickDecompressor:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def decompress(self, codec: Codec, data: Buffer, *, bytes_max: int) -> Buffer:
        """As `kafka_formats.compression.decompress`; uncompressed data is not copied."""
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
        return None  # the careful reader of snappy is as quick, by blocks that announce their size

    def _read_zstd(self, data: Buffer, limit: int) -> Buffer | None:
        try:
            # A size that the frame announces is allocated as it stands: nothing else bounds it.
            if zstandard.frame_content_size(data) > limit:
                return None
            return self._zstd.decompress(data, max_output_size=limit, allow_extra_data=False)
        except zstandard.ZstdError:
            return None


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
