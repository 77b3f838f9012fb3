"""Rows as records of a snapshot of the metadata log, and back (KIP-630's file, our content).

A segment row is Kafka's own RemoteLogSegmentMetadataRecord, so that stock tools print it. Every
other row is one private control record that carries key and value. Both keep the rows' key order,
so the records are the same bytes on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_formats.errors import CorruptData
from kafka_formats.primitives import Reader, Writer
from rlmm.control_records import ControlRecordType
from rlmm.metadata_log import Proposal
from rlmm.row_keys import LOGICAL_END, LOGICAL_START, RowKind, segment_key
from rlmm.row_segments import decode_usual
from rlmm.segment import RemoteLogSegmentMetadata
from rlmm.segment_records import decode_segment_record
from rlmm.short_lengths import LENGTH_MAX, SHORT_LENGTHS

VERSION = 0
SOURCE = "snapshot"
_SEGMENT = int(RowKind.SEGMENT)
_SNAPSHOT_ROW = int(ControlRecordType.SNAPSHOT_ROW)
_FRONT = VERSION.to_bytes(2)
_NO_TAGS = b"\0"
_new = tuple.__new__  # a snapshot has millions of rows, and a NamedTuple's own takes twice as long


def to_proposals(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[Proposal]:
    """The logical rows, in key order, as the snapshot's records."""
    for key, value in rows:
        if key[0] == _SEGMENT:
            yield _new(Proposal, (None, value))
        elif len(key) < LENGTH_MAX and len(value) < LENGTH_MAX:
            key_length, length = SHORT_LENGTHS[len(key) + 1], SHORT_LENGTHS[len(value) + 1]
            row = b"".join((_FRONT, key_length, key, length, value, _NO_TAGS))
            yield _new(Proposal, (_SNAPSHOT_ROW, row))
        else:
            yield Proposal(_SNAPSHOT_ROW, _encode_long_row(key, value))


def _encode_long_row(key: bytes, value: bytes) -> bytes:
    writer = Writer()
    writer.int16(VERSION)
    writer.bytes_(key)
    writer.bytes_(value)
    writer.tagged_fields(())
    return writer.done()


def from_proposals(records: Iterable[Proposal]) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a snapshot's records; CorruptData for anything that no snapshot holds."""
    before = b""
    for record in records:
        row = _row_of(record)
        if row[0] <= before:
            raise CorruptData(f"row {row[0][:40].hex()} is out of order", source=SOURCE, position=0)
        before = row[0]
        yield row


def _row_of(record: Proposal) -> tuple[bytes, bytes]:
    if record.control_type is None:
        segment = decode_usual(record.value) or decode_segment_record(record.value, source=SOURCE)
        if not isinstance(segment, RemoteLogSegmentMetadata):
            raise CorruptData("a snapshot holds an update", source=SOURCE, position=0)
        return segment_key(segment.segment_id.id), record.value
    if record.control_type != ControlRecordType.SNAPSHOT_ROW:
        raise CorruptData(
            f"control record {record.control_type} is no row", source=SOURCE, position=0
        )
    reader = Reader(record.value, SOURCE)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"a snapshot row has version {version}, known is {VERSION}")
    key, value = reader.bytes_(), reader.bytes_()
    reader.tagged_fields()
    reader.expect_end()
    if not LOGICAL_START <= key < LOGICAL_END or key[0] == _SEGMENT:
        raise reader.corrupt(f"{key[:40].hex()} is no key of such a row")
    return key, value
