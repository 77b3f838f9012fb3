"""Encodes and decodes rows of the trash: a partition's expiry marks, and a hold. Pure."""

from __future__ import annotations

from struct import Struct

from kafka_formats.primitives import Reader, Writer
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import NOTHING_EXPIRES, Expiry, ExpiryHold, ExpiryMark
from rlmm.rows import keys
from rlmm.rows.rows import RowReader

VERSION = 0
_SOURCE = "expiry row"
_NUMBERS = Struct(">qqqqqqqqq")  # all fields of a mark but its reason, which follows them


def encode_expiry(topic: str, expiry: Expiry) -> bytes:
    """Encode the row; it has the topic's name, which is not in the key."""
    writer = Writer()
    writer.int16(VERSION)
    writer.string(topic)
    writer.int64(expiry.offset)
    writer.array_length(len(expiry.marks))
    for mark in expiry.marks:
        *numbers, why = mark
        writer.fields(_NUMBERS, *numbers)
        writer.string(why)
    writer.boolean(expiry.hold is not None)
    if expiry.hold is not None:
        writer.int64(expiry.hold.policy_offset)
        writer.string(expiry.hold.who)
        writer.string(expiry.hold.why)
        writer.int64(expiry.hold.set_ms)
    writer.tagged_fields(())
    return writer.done()


def decode_expiry(value: bytes) -> tuple[str, Expiry]:
    """(topic, its expiry). CorruptData for a row that `encode_expiry` does not write."""
    reader = Reader(value, _SOURCE)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"version {version} is unknown, this program reads {VERSION}")
    topic, offset = reader.string(), reader.int64()
    marks = tuple(_read_mark(reader) for _ in range(reader.array_length()))
    hold = None
    if reader.boolean():
        hold = ExpiryHold(reader.int64(), reader.string(), reader.string(), reader.int64())
    if reader.tagged_fields():
        raise reader.corrupt("tagged fields, and none is known")
    reader.expect_end()
    return topic, Expiry(marks, hold, offset)


def _read_mark(reader: Reader) -> ExpiryMark:
    numbers: tuple[int, int, int, int, int, int, int, int, int] = reader.fields(_NUMBERS)
    return ExpiryMark(*numbers, reader.string())


def find_expiry(rows: RowReader, partition: TopicIdPartition) -> Expiry:
    value = rows.get(keys.expiry_key(partition))
    return NOTHING_EXPIRES if value is None else decode_expiry(value)[1]
