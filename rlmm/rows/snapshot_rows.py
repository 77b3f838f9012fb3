"""Converts rows to records of a snapshot of the metadata log, and back (KIP-630's file format, with
our records).

A segment row is Kafka's own RemoteLogSegmentMetadataRecord, so that stock tools print it. Every
other row is one private control record with key and value. Both keep the rows' key order, so the
records are the same bytes on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_formats.errors import CorruptData
from kafka_formats.primitives import Reader, Writer
from rlmm.metadata_log import Proposal
from rlmm.records.control_records import ControlRecordType
from rlmm.records.fixed_layout import decode_usual
from rlmm.records.segment_records import decode_segment_record
from rlmm.records.short_lengths import LENGTH_MAX, SHORT_LENGTHS, read_short_length
from rlmm.rows.keys import LOGICAL_END, LOGICAL_START, RowKind, segment_key
from rlmm.segment import RemoteLogSegmentMetadata

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
    """The rows of a snapshot's records. CorruptData for a record that no snapshot contains."""
    before = b""
    for record in records:
        row = _row_of(record)
        if row[0] <= before:
            raise CorruptData(f"row {row[0][:40].hex()} is out of order", source=SOURCE)
        before = row[0]
        yield row


def _row_of(record: Proposal) -> tuple[bytes, bytes]:
    control_type, value = record
    if control_type is None:
        segment = decode_usual(value) or decode_segment_record(value, source=SOURCE)
        if not isinstance(segment, RemoteLogSegmentMetadata):
            raise CorruptData("a snapshot contains an update", source=SOURCE)
        return segment_key(segment.segment_id.id), value
    if control_type != _SNAPSHOT_ROW:
        raise CorruptData(f"control record {control_type} is not a row", source=SOURCE)
    row = _short_row(value) or _long_row(value)
    key = row[0]
    if not LOGICAL_START <= key < LOGICAL_END or key[0] == _SEGMENT:
        raise CorruptData(f"{key[:40].hex()} is not a key of such a row", source=SOURCE)
    return row


def _short_row(record: bytes) -> tuple[bytes, bytes] | None:
    """A row that `to_proposals` wrote with short lengths; None for anything else."""
    if not record.startswith(_FRONT):
        return None
    try:
        size, at = read_short_length(record, len(_FRONT))
        end = at + size - 1
        length, value_at = read_short_length(record, end)
    except IndexError:
        return None
    value_end = value_at + length - 1
    if size < 1 or length < 1 or record[value_end:] != _NO_TAGS:
        return None
    return record[at:end], record[value_at:value_end]


def _long_row(record: bytes) -> tuple[bytes, bytes]:
    reader = Reader(record, SOURCE)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"a snapshot row has version {version}, this program reads {VERSION}")
    key, value = reader.bytes_(), reader.bytes_()
    reader.tagged_fields()
    reader.expect_end()
    return key, value
