"""Records as JSON lines."""

from __future__ import annotations

import json

import pytest

from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.compression import Codec
from kafka_formats.errors import CorruptData
from kafka_formats.record_batch import Record, encode_batch
from rlm.json_lines import LINES_BYTES, json_line, json_lines

RECORDS = [
    Record(10, 1_000, b"k", b"v", (("h", b"x"), ("h", None), ("raw", b"\xff"))),
    Record(11, 1_001, None, b"\xff\x00"),
    Record(13, 1_002, "schlüssel".encode(), None),
]


def batch(records: list[Record], codec: Codec = Codec.NONE) -> ScannedBatch:
    (scanned,) = scan(encode_batch(records, base_offset=10, codec=codec), source="log")
    return scanned


def test_text_is_text_and_the_rest_is_base64() -> None:
    lines = b"".join(json_lines(batch(RECORDS), from_offset=0, source="log")).splitlines()
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


def test_records_before_the_asked_offset_are_left_out() -> None:
    lines = b"".join(json_lines(batch(RECORDS), from_offset=11, source="log"))
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [11, 13]
    assert list(json_lines(batch(RECORDS), from_offset=14, source="log")) == []


def test_a_line_is_one_line_whatever_the_text_holds() -> None:
    line = json_line(Record(0, 0, b"a\nb\x00", "\u2028\u2029\x85".encode()))
    assert line.count(b"\n") == 1
    assert json.loads(line)["key"] == "a\nb\x00"


def test_large_batches_come_in_pieces_of_whole_lines() -> None:
    records = [Record(10 + at, 0, None, b"x" * 1_000) for at in range(200)]
    pieces = list(json_lines(batch(records, Codec.LZ4), from_offset=0, source="log"))
    assert len(pieces) > 2
    assert all(piece.endswith(b"\n") and len(piece) < LINES_BYTES * 2 for piece in pieces)
    assert b"".join(pieces).count(b"\n") == 200


def test_malformed_records_name_the_object_and_the_position() -> None:
    scanned = batch(RECORDS)
    broken = ScannedBatch(scanned.header, 500, bytes(scanned.data[:-1]) + b"\x7f")
    with pytest.raises(CorruptData) as caught:
        list(json_lines(broken, from_offset=0, source="key.log"))
    assert (caught.value.source, caught.value.position) == ("key.log", 500)
