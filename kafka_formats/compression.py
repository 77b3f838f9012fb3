"""The five codecs of record batches, with a bound on what decompression may produce.

Every decompressor stops as soon as its output passes `bytes_max`, so that a few bytes that stand
for gigabytes cost no more than `bytes_max` plus one step of the library (at most about 16 MiB).
Input must end where the compressed data ends; only gzip and zstd may consist of several parts.

Framing as Kafka's clients write it: gzip stream; snappy-java stream or a raw snappy block; LZ4
frame with independent blocks (Kafka refuses linked ones); zstd frame.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import lz4.frame  # type: ignore[import-untyped]  # the package has no types; only this file uses it
import zstandard

from kafka_formats import snappy_stream
from kafka_formats.crc32c import Buffer
from kafka_formats.snappy_stream import CompressionError as CompressionError
from kafka_formats.snappy_stream import TooMuchError as TooMuchError

_GZIP_WBITS = 31
_MEMBERS_MAX = 65_536
_OUTPUT_STEP_BYTES = 1 << 20
# Bytes fed at once. Libraries copy the rest of their input at every step, so large pieces would
# make it quadratic; and a zstd block of 4 bytes may stand for 128 KiB, so the size of the piece
# bounds the output of a step.
_INPUT_STEP_BYTES = 16 << 10
_ZSTD_INPUT_STEP_BYTES = 512


class Codec(IntEnum):
    """Compression of a record batch; the numbers are bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress so that Kafka's own clients can read it."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, wbits=_GZIP_WBITS)
        case Codec.SNAPPY:
            return snappy_stream.compress(data)
        case Codec.LZ4:
            framed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
            return framed
        case Codec.ZSTD:
            return zstandard.ZstdCompressor().compress(data)


def decompress(codec: Codec, data: Buffer, *, bytes_max: int) -> bytes:
    """Decompress; CompressionError if the input is damaged or gives more than `bytes_max` bytes."""
    match codec:
        case Codec.NONE:
            if len(data) > bytes_max:
                raise TooMuchError(f"{len(data)} bytes, over the limit of {bytes_max}")
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(memoryview(data), bytes_max)
        case Codec.SNAPPY:
            return snappy_stream.decompress(data, bytes_max=bytes_max)
        case Codec.LZ4:
            return _read_lz4_frame(memoryview(data), bytes_max)
        case Codec.ZSTD:
            return _read_zstd_frames(memoryview(data), bytes_max)


class _Output:
    """Collects pieces up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._data = bytearray()
        self._bytes_max = bytes_max

    def step_bytes(self) -> int:
        """Bytes to ask for next; one byte over the limit is enough to see that it is passed."""
        return min(_OUTPUT_STEP_BYTES, self._bytes_max - len(self._data) + 1)

    def add(self, piece: bytes) -> None:
        self._data += piece
        if len(self._data) > self._bytes_max:
            raise TooMuchError(f"decompresses to more than the limit of {self._bytes_max} bytes")

    def done(self) -> bytes:
        return bytes(self._data)


def _gunzip(data: memoryview, bytes_max: int) -> bytes:
    output = _Output(bytes_max)
    at = 0
    for _ in range(_MEMBERS_MAX):
        member = zlib.decompressobj(wbits=_GZIP_WBITS)
        while not member.eof:
            piece: Buffer = data[at : at + _INPUT_STEP_BYTES]
            if not piece:
                raise CompressionError("the gzip stream ends before its end mark")
            at += len(piece)
            try:
                while piece and not member.eof:  # zlib leaves a tail even after the end
                    output.add(member.decompress(piece, output.step_bytes()))
                    piece = member.unconsumed_tail
            except zlib.error as error:
                raise CompressionError(f"the gzip stream is damaged ({error})") from error
        at -= len(member.unused_data)
        if at == len(data):
            return output.done()
    raise CompressionError(f"the gzip stream has more than {_MEMBERS_MAX} members")


def _read_lz4_frame(data: memoryview, bytes_max: int) -> bytes:
    output = _Output(bytes_max)
    frame = lz4.frame.LZ4FrameDecompressor()
    at = 0
    while not frame.eof:
        piece = b""
        if frame.needs_input:
            piece = bytes(data[at : at + _INPUT_STEP_BYTES])
            if not piece:
                raise CompressionError("the LZ4 frame ends before its end mark")
            at += len(piece)
        try:
            output.add(frame.decompress(piece, max_length=output.step_bytes()))
        except RuntimeError as error:
            raise CompressionError(f"the LZ4 frame is damaged ({error})") from error
    trailing = len(data) - at + len(frame.unused_data or b"")
    if trailing:
        raise CompressionError(f"{trailing} bytes follow the LZ4 frame")
    return output.done()


def _read_zstd_frames(data: memoryview, bytes_max: int) -> bytes:
    output = _Output(bytes_max)
    at = 0
    for _ in range(_MEMBERS_MAX):
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            piece = data[at : at + _ZSTD_INPUT_STEP_BYTES]
            if not piece:
                raise CompressionError("the zstd frame ends before its last block")
            at += len(piece)
            try:
                output.add(frame.decompress(piece))
            except zstandard.ZstdError as error:
                raise CompressionError(f"the zstd frame is damaged ({error})") from error
        at -= len(frame.unused_data)
        if at == len(data):
            return output.done()
    raise CompressionError(f"more than {_MEMBERS_MAX} zstd frames follow each other")
