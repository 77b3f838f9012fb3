"""Records as JSON lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.compression import Codec
from kafka_formats.errors import CorruptData, InvalidRequest, RetryLater
from kafka_formats.record_batch import DECOMPRESSED_BYTES_MAX, Record, encode_batch
from rlm.data_plane import json_lines
from rlm.data_plane.json_lines import (
    LARGE_BATCHES_MAX,
    LINES_BYTES,
    SMALL_BATCH_BYTES,
    JsonLines,
    json_line,
)
from rsm_backends.streams import closing_stream

RECORDS = [
    Record(10, 1_000, b"k", b"v", (("h", b"x"), ("h", None), ("raw", b"\xff"))),
    Record(11, 1_001, None, b"\xff\x00"),
    Record(13, 1_002, "schlüssel".encode(), None),
]


def batch(records: list[Record], codec: Codec = Codec.NONE) -> ScannedBatch:
    (scanned,) = scan(encode_batch(records, base_offset=10, codec=codec), source="log")
    return scanned


async def pieces_of(
    scanned: ScannedBatch, *, from_offset: int = 0, source: str = "log"
) -> list[bytes]:
    lines = JsonLines().of(scanned, from_offset=from_offset, source=source)
    return [piece async for piece in lines]


async def test_text_is_text_and_the_rest_is_base64() -> None:
    lines = b"".join(await pieces_of(batch(RECORDS))).splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "offset": 10,
            "timestamp_ms": 1_000,
            "key": "k",
            "key_encoding": "utf-8",
            "value": "v",
            "value_encoding": "utf-8",
            "headers": [
                {"key": "h", "value": "x", "encoding": "utf-8"},
                {"key": "h", "value": None, "encoding": None},
                {"key": "raw", "value": "/w==", "encoding": "base64"},
            ],
        },
        {
            "offset": 11,
            "timestamp_ms": 1_001,
            "key": None,
            "key_encoding": None,
            "value": "/wA=",
            "value_encoding": "base64",
            "headers": [],
        },
        {
            "offset": 13,
            "timestamp_ms": 1_002,
            "key": "schlüssel",
            "key_encoding": "utf-8",
            "value": None,
            "value_encoding": None,
            "headers": [],
        },
    ]


async def test_records_before_the_asked_offset_are_left_out() -> None:
    lines = b"".join(await pieces_of(batch(RECORDS), from_offset=11))
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [11, 13]
    assert await pieces_of(batch(RECORDS), from_offset=14) == []


def test_a_line_is_one_line_whatever_the_text_holds() -> None:
    (line,) = json_line(Record(0, 0, b"a\nb\x00", "\u2028\u2029\x85".encode()))
    assert line.count(b"\n") == 1
    assert json.loads(line)["key"] == "a\nb\x00"


async def test_large_batches_come_in_pieces_of_whole_lines() -> None:
    records = [Record(10 + at, 0, None, b"x" * 1_000) for at in range(200)]
    pieces = await pieces_of(batch(records, Codec.LZ4))
    assert len(pieces) > 2
    assert all(piece.endswith(b"\n") and len(piece) < LINES_BYTES * 2 for piece in pieces)
    assert b"".join(pieces).count(b"\n") == 200


async def test_malformed_records_name_the_object_and_the_position() -> None:
    scanned = batch(RECORDS)
    broken = ScannedBatch(scanned.header, 500, bytes(scanned.data[:-1]) + b"\x7f")
    with pytest.raises(CorruptData) as caught:
        await pieces_of(broken, source="key.log")
    assert (caught.value.source, caught.value.position) == ("key.log", 500)


TEXTS = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.text(alphabet='a\x00"é€𝄞', max_size=30).map(str.encode),
)


@given(
    key=TEXTS,
    value=TEXTS,
    headers=st.lists(st.tuples(st.text(max_size=5), TEXTS), max_size=3),
    slice_bytes=st.integers(1, 4),
)
def test_a_line_in_pieces_is_the_same_line(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    slice_bytes: int,
) -> None:
    record = Record(7, -1, key, value, tuple(headers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_SLICE_BYTES", 1_000_000)
        whole = b"".join(json_line(record))
        patch.setattr(json_lines, "_SLICE_BYTES", 3 * slice_bytes)
        assert b"".join(json_line(record)) == whole


async def test_a_record_that_stands_for_many_bytes_goes_out_in_small_pieces() -> None:
    zeros = batch([Record(10, 0, None, bytes(DECOMPRESSED_BYTES_MAX - 1_000))], Codec.GZIP)
    assert len(zeros.data) < 100_000
    count = 0
    async for piece in JsonLines().of(zeros, from_offset=0, source="log"):
        assert len(piece) <= LINES_BYTES + 6 * LINES_BYTES
        count += len(piece)
    assert count > 6 * (DECOMPRESSED_BYTES_MAX - 1_000)


async def test_a_batch_of_more_than_is_ever_held_names_the_raw_alternative() -> None:
    zeros = batch([Record(10, 0, None, bytes(DECOMPRESSED_BYTES_MAX + 1))], Codec.ZSTD)
    with pytest.raises(InvalidRequest, match=r"offset 10 .*format=batches"):
        await pieces_of(zeros)


async def test_only_a_few_large_batches_are_held_at_once_and_small_ones_never_wait() -> None:
    lines = JsonLines(wait_s=0.0)
    large = batch([Record(10, 0, None, bytes(SMALL_BATCH_BYTES))], Codec.GZIP)

    def read(scanned: ScannedBatch) -> AsyncIterator[bytes]:
        return lines.of(scanned, from_offset=0, source="log")

    async with AsyncExitStack() as open_reads:
        for _ in range(LARGE_BATCHES_MAX):
            await anext(await open_reads.enter_async_context(closing_stream(read(large))))
        with pytest.raises(RetryLater, match="format=batches"):
            await anext(read(large))
        assert [piece async for piece in read(batch(RECORDS))]
    assert [piece async for piece in read(large)]
