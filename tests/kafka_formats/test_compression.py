"""The codecs: round trips, other writers' framings, damage, and bombs."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame  # type: ignore[import-untyped]  # the package has no types
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.compression import Codec, CompressionError, compress, decompress
from tests.kafka_formats.damage import damaged

LIMIT = 1 << 20
TEXT = b"a segment is sealed when its successor is there. " * 200
CODECS = list(Codec)
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def unpacked(codec: Codec, data: bytes, bytes_max: int = LIMIT) -> bytes:
    return decompress(codec, data, bytes_max=bytes_max)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 50))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, repeats: int) -> None:
    assert unpacked(codec, compress(codec, data * repeats)) == data * repeats


@pytest.mark.parametrize("codec", CODECS)
def test_views_are_read_like_bytes(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    framed = b"??" + packed + b"??"
    assert decompress(codec, memoryview(framed)[2:-2], bytes_max=LIMIT) == TEXT
    assert decompress(codec, bytearray(packed), bytes_max=LIMIT) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert unpacked(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(CompressionError, match="limit"):
        unpacked(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec is not Codec.NONE])
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_input_is_a_compression_error_or_other_bytes(
    codec: Codec, data: st.DataObject
) -> None:
    with contextlib.suppress(CompressionError):
        assert len(unpacked(codec, data.draw(damaged(compress(codec, TEXT))))) <= LIMIT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_every_truncation_is_noticed(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    # A snappy stream has no end mark: one that is cut between blocks is whole.
    shortest = len(XERIAL_HEADER) + 1 if codec is Codec.SNAPPY else 0
    for size in range(shortest, len(packed)):
        with pytest.raises(CompressionError):
            unpacked(codec, packed[:size])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bytes_behind_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(CompressionError):
        unpacked(codec, compress(codec, TEXT) + b"more")


def bomb(codec: Codec) -> bytes:
    zeros = bytes(64 << 20)
    match codec:
        case Codec.LZ4:
            framed: bytes = lz4.frame.compress(zeros)
            return framed
        case _:
            return compress(codec, zeros)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_costs_little_memory(codec: Codec) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="limit"):
            unpacked(codec, packed)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 40 << 20


def test_gzip_members_and_zstd_frames_may_follow_each_other() -> None:
    assert unpacked(Codec.GZIP, compress(Codec.GZIP, b"one ") + compress(Codec.GZIP, b"two")) == (
        b"one two"
    )
    sizeless = zstandard.ZstdCompressor(write_content_size=False)
    assert unpacked(Codec.ZSTD, sizeless.compress(b"one ") + sizeless.compress(b"two")) == (
        b"one two"
    )


def test_very_many_gzip_members_end_in_an_error() -> None:
    with pytest.raises(CompressionError, match="members"):
        unpacked(Codec.GZIP, zlib.compress(b"", wbits=31) * 65_537)


def test_very_many_zstd_frames_end_in_an_error() -> None:
    with pytest.raises(CompressionError, match="frames"):
        unpacked(Codec.ZSTD, zstandard.ZstdCompressor().compress(b"") * 65_537)


def test_lz4_frames_are_written_as_kafka_reads_them() -> None:
    packed = compress(Codec.LZ4, TEXT)
    flags = packed[4]
    assert packed[:4] == bytes.fromhex("04224d18")
    assert flags >> 6 == 1  # version of the frame format
    assert flags & 0x20  # independent blocks
    assert not flags & 0x08  # no content size


def test_raw_snappy_is_read_like_the_stream() -> None:
    for text in (TEXT, b""):
        assert unpacked(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(text))) == text


def test_snappy_streams_have_the_xerial_header_and_may_be_concatenated() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(XERIAL_HEADER)
    assert unpacked(Codec.SNAPPY, packed + packed) == TEXT + TEXT
    assert unpacked(Codec.SNAPPY, XERIAL_HEADER) == b""


def test_snappy_streams_hold_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, bytes(100_000))
    at, blocks = len(XERIAL_HEADER), 0
    while at < len(packed):
        at += 4 + int.from_bytes(packed[at : at + 4], "big")
        blocks += 1
    assert (at, blocks) == (len(packed), 4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        XERIAL_HEADER[:12],
        XERIAL_HEADER + b"\0\0",
        XERIAL_HEADER + bytes(4),
        XERIAL_HEADER + b"\xff\xff\xff\xff",
        XERIAL_HEADER + b"\x7f\xff\xff\xffabc",
        b"\xff\xff\xff\xff\x0fabc",
        b"\x80\x80\x20abc",
    ],
)
def test_malformed_snappy_is_refused(data: bytes) -> None:
    with pytest.raises(CompressionError):
        unpacked(Codec.SNAPPY, data)


def test_a_zstd_frame_that_announces_exabytes_is_refused() -> None:
    header = bytes.fromhex("28b52ffd") + b"\xe0" + (2**60).to_bytes(8, "little")
    with pytest.raises(CompressionError):
        unpacked(Codec.ZSTD, header + b"\x01\x00\x00")


def test_a_gzip_member_that_ends_with_a_step_of_output_is_followed_by_the_next() -> None:
    """What zlib still holds behind the end of a long member is not its own."""
    packed = compress(Codec.GZIP, bytes(3 << 20))
    both = packed + compress(Codec.GZIP, TEXT)
    assert unpacked(Codec.GZIP, both, bytes_max=4 << 20) == bytes(3 << 20) + TEXT
    with pytest.raises(CompressionError, match="damaged"):
        unpacked(Codec.GZIP, packed + b"garbage", bytes_max=4 << 20)
