"""Flexible-version encodings: Kafka's golden messages, round trips, and hostile lengths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.primitives import Reader, Writer
from tests.kafka_formats.damage import SOURCE, damaged, survives

TOPIC_ID = Uuid(bytes.fromhex("112233445566778899aabbccddeeff00"))
SEGMENT_ID = Uuid(bytes.fromhex("0102030405060708090a0b0c0d0e0f10"))
ADD = bytes.fromhex(
    "010000076f7264657273112233445566778899aabbccddeeff0000000003000102030405060708090a0b0c0d0e0f10"
    "0000000000000003e800000000000007cf000000020000018bcfe5687b0000018bcfe56be803000000040000000000"
    "0003e8000000000600000000000005dc0000100000000000"
)
UPDATE = bytes.fromhex(
    "010100076f7264657273112233445566778899aabbccddeeff0000000003000102030405060708090a0b0c0d0e0f10"
    "00000000020000018bcfe56fd003cafe0100"
)
ADD_WITH_EMPTY_TXN_INDEX_END = bytes.fromhex("0001000101")


def write_segment_id(writer: Writer) -> None:
    writer.string("orders")
    writer.uuid(TOPIC_ID)
    writer.int32(3)
    writer.tagged_fields(())
    writer.uuid(SEGMENT_ID)
    writer.tagged_fields(())


def test_the_golden_segment_add_is_written_byte_for_byte() -> None:
    writer = Writer()
    for number in (1, 0, 0):
        writer.uvarint(number)
    write_segment_id(writer)
    writer.int64(1000)
    writer.int64(1999)
    writer.int32(2)
    writer.int64(1700000000123)
    writer.int64(1700000001000)
    writer.array_length(2)
    for epoch, offset in ((4, 1000), (6, 1500)):
        writer.int32(epoch)
        writer.int64(offset)
        writer.tagged_fields(())
    writer.int32(1048576)
    writer.nullable_bytes(None)
    writer.int8(0)
    writer.tagged_fields(())
    assert writer.done() == ADD


def read_update(data: bytes) -> tuple[object, ...]:
    reader = Reader(data, SOURCE)
    values = (
        (reader.uvarint(), reader.uvarint(), reader.uvarint()),
        reader.string(),
        reader.uuid(),
        reader.int32(),
        reader.tagged_fields(),
        reader.uuid(),
        reader.tagged_fields(),
        reader.int32(),
        reader.int64(),
        reader.nullable_bytes(),
        reader.int8(),
        reader.tagged_fields(),
    )
    reader.expect_end()
    return values


def test_the_golden_segment_update_is_read() -> None:
    assert read_update(UPDATE) == (
        (1, 1, 0),
        "orders",
        TOPIC_ID,
        3,
        (),
        SEGMENT_ID,
        (),
        2,
        1700000002000,
        b"\xca\xfe",
        1,
        (),
    )


def test_a_golden_tagged_field_is_read_and_written() -> None:
    reader = Reader(ADD_WITH_EMPTY_TXN_INDEX_END, SOURCE)
    assert (reader.int8(), reader.tagged_fields()) == (0, ((0, b"\x01"),))
    writer = Writer()
    writer.int8(0)
    writer.tagged_fields(((0, b"\x01"),))
    assert writer.done() == ADD_WITH_EMPTY_TXN_INDEX_END


@settings(max_examples=100, deadline=None)
@given(damaged(UPDATE))
def test_a_damaged_message_is_corrupt_data_or_another_message(data: bytes) -> None:
    survives(read_update, data)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.none() | st.text(),
    st.none() | st.binary(),
    st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=20), max_size=5),
)
def test_what_is_written_is_read(
    number: int,
    unsigned: int,
    flag: bool,
    text: str | None,
    raw: bytes | None,
    tags: dict[int, bytes],
) -> None:
    writer = Writer()
    writer.int64(number)
    writer.int16(number % 2**15)
    writer.uvarint(unsigned)
    writer.boolean(flag)
    writer.string(text or "")
    writer.nullable_bytes(raw)
    writer.bytes_(memoryview(raw or b""))
    writer.tagged_fields(tags.items())
    reader = Reader(writer.done(), SOURCE)
    assert reader.int64() == number
    assert reader.int16() == number % 2**15
    assert reader.uvarint() == unsigned
    assert reader.boolean() is flag
    assert reader.string() == (text or "")
    assert reader.nullable_bytes() == raw
    assert reader.bytes_() == (raw or b"")
    assert reader.tagged_fields() == tuple(sorted(tags.items()))
    assert reader.remaining == 0
    reader.expect_end()


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (Reader.int64, "00000000000000"),
        (Reader.boolean, "02"),
        (Reader.uvarint, "ffffffffff00"),
        (Reader.uvarint, "ffffffff7f"),
        (Reader.string, "00"),
        (Reader.string, "ffffffff0f61"),
        (Reader.string, "02ff"),
        (Reader.bytes_, "00"),
        (Reader.nullable_bytes, "0561"),
        (Reader.uuid, "00" * 15),
        (Reader.array_length, "00"),
        (Reader.array_length, "ffffffff0f00"),
        (Reader.tagged_fields, "ffffffff0f"),
        (Reader.tagged_fields, "0200000000"),
        (Reader.tagged_fields, "010005aa"),
        (Reader.expect_end, "00"),
    ],
)
def test_malformed_input_is_corrupt_data(read: object, data: str) -> None:
    assert callable(read)
    with pytest.raises(CorruptData, match="some/file at byte"):
        read(Reader(bytes.fromhex(data), SOURCE))


def test_the_position_counts_from_where_the_message_lies_in_its_file() -> None:
    reader = Reader(b"\x00\x00", SOURCE, position=100)
    reader.int8()
    with pytest.raises(CorruptData) as caught:
        reader.int32()
    assert caught.value.position == 101


def test_values_that_do_not_fit_are_invalid_requests() -> None:
    writer = Writer()
    with pytest.raises(InvalidRequest):
        writer.int8(128)
    with pytest.raises(InvalidRequest):
        writer.int64(2**63)
    with pytest.raises(InvalidRequest):
        writer.uvarint(-1)
    with pytest.raises(InvalidRequest):
        writer.uvarint(2**32)
    with pytest.raises(InvalidRequest):
        writer.string("\ud800")
    with pytest.raises(InvalidRequest):
        writer.tagged_fields(((1, b""), (1, b"")))
    assert writer.done() == b""
