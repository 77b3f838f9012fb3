"""Kafka's three metadata records, bit for bit, with Strandline's private tagged fields.

Sources: RemoteLogSegmentMetadataRecord.json, RemoteLogSegmentMetadataUpdateRecord.json,
RemotePartitionDeleteMetadataRecord.json and BytesApiMessageSerde's frame: uvarint frame version 1,
uvarint api key, uvarint message version 0, message. Strandline's fields are tagged fields from
10000 on, which Kafka's readers skip and keep. Unknown tagged fields are kept, also those of nested
structs: rewriting a row loses nothing that a newer program wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_formats.primitives import Reader, Writer
from rlmm.records.record_fields import (
    Tags,
    int64_bytes,
    read_incarnation,
    read_partition,
    value_of,
    write_incarnation,
    write_partition,
)
from rlmm.segment import (
    Incarnation,
    NestedTags,
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

FRAME_VERSION = 1
MESSAGE_VERSION = 0

SEGMENT_KEY = 0
SEGMENT_UPDATE_KEY = 1
PARTITION_DELETE_KEY = 2

SEGMENT_FRONT = bytes((FRAME_VERSION, SEGMENT_KEY, MESSAGE_VERSION))
UPDATE_FRONT = bytes((FRAME_VERSION, SEGMENT_UPDATE_KEY, MESSAGE_VERSION))
"""The first bytes of each record that adds a segment, and of each that updates one."""

TAG_TXN_INDEX_EMPTY = 0  # Kafka's own
TAG_TOKEN = 10000
TAG_WRITER = 10001
TAG_UPLOAD_DEADLINE = 10002
TAG_FINISHED_AT = 10003
TAG_EXPECTED_STATE = 10004
TAG_REPLACES_OFFSET = 10005
TAG_GRACE = 10006
TAG_POLICY_OFFSET = 10007
TAG_SEEN = 10008
TAG_MAX_TIMESTAMP = 10009

SegmentRecord = (
    RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
)

# The places of unknown tags of nested structs: the partition entry, the segment id entry, and the
# n-th leader epoch entry at _IN_EPOCHS + n.
_IN_PARTITION = 0
_IN_SEGMENT_ID = 1
_IN_EPOCHS = 2

_Value = TypeVar("_Value")
_Default = TypeVar("_Default")


def encode_segment_record(record: SegmentRecord) -> bytes:
    """Encode a record with its frame. InvalidRequest: a number does not fit its field."""
    writer = Writer()
    writer.uvarint(FRAME_VERSION)
    if isinstance(record, RemoteLogSegmentMetadata):
        _write_frame(writer, SEGMENT_KEY)
        _write_segment(writer, record)
    elif isinstance(record, RemoteLogSegmentMetadataUpdate):
        _write_frame(writer, SEGMENT_UPDATE_KEY)
        _write_update(writer, record)
    else:
        _write_frame(writer, PARTITION_DELETE_KEY)
        _write_partition_delete(writer, record)
    return writer.done()


def _write_frame(writer: Writer, key: int) -> None:
    writer.uvarint(key)
    writer.uvarint(MESSAGE_VERSION)


def _write_segment_id(writer: Writer, id_: RemoteLogSegmentId, nested: NestedTags) -> None:
    tags = dict(nested)
    write_partition(writer, id_.partition, tags.get(_IN_PARTITION, ()))
    writer.uuid(id_.id)
    writer.tagged_fields(tags.get(_IN_SEGMENT_ID, ()))


def _write_segment(writer: Writer, record: RemoteLogSegmentMetadata) -> None:
    _write_segment_id(writer, record.segment_id, record.nested_unknown_tags)
    writer.int64(record.start_offset)
    writer.int64(record.end_offset)
    writer.int32(record.broker_id)
    writer.int64(record.max_timestamp_ms)
    writer.int64(record.event_timestamp_ms)
    tags = dict(record.nested_unknown_tags)
    writer.array_length(len(record.leader_epochs))
    for index, (epoch, offset) in enumerate(record.leader_epochs):
        writer.int32(epoch)
        writer.int64(offset)
        writer.tagged_fields(tags.get(_IN_EPOCHS + index, ()))
    writer.int32(record.size_bytes)
    writer.nullable_bytes(record.custom_metadata)
    writer.int8(record.state)
    known: list[tuple[int, bytes]] = []
    if record.txn_index_empty:
        known.append((TAG_TXN_INDEX_EMPTY, b"\x01"))
    known += _authority_tags(record.token, record.writer)
    if record.upload_deadline_ms >= 0:
        known.append((TAG_UPLOAD_DEADLINE, int64_bytes(record.upload_deadline_ms)))
    if record.finished_at >= 0:
        known.append((TAG_FINISHED_AT, int64_bytes(record.finished_at)))
    writer.tagged_fields((*known, *record.unknown_tags))


def _write_update(writer: Writer, record: RemoteLogSegmentMetadataUpdate) -> None:
    _write_segment_id(writer, record.segment_id, ())
    writer.int32(record.broker_id)
    writer.int64(record.event_timestamp_ms)
    writer.nullable_bytes(record.custom_metadata)
    writer.int8(record.state)
    known = _authority_tags(record.token, record.writer)
    if record.expected_state is not None:
        known.append((TAG_EXPECTED_STATE, bytes((record.expected_state,))))
    if record.policy_offset is not None:
        known.append((TAG_POLICY_OFFSET, int64_bytes(record.policy_offset)))
    if record.max_timestamp_ms >= 0:
        known.append((TAG_MAX_TIMESTAMP, int64_bytes(record.max_timestamp_ms)))
    writer.tagged_fields((*known, *record.unknown_tags))


def _write_partition_delete(writer: Writer, record: RemotePartitionDeleteMetadata) -> None:
    write_partition(writer, record.partition)
    writer.int32(record.broker_id)
    writer.int64(record.event_timestamp_ms)
    writer.int8(record.state)
    known: list[tuple[int, bytes]] = []
    if record.replaces_offset >= 0:
        known.append((TAG_REPLACES_OFFSET, int64_bytes(record.replaces_offset)))
    if record.grace_ms >= 0:
        known.append((TAG_GRACE, int64_bytes(record.grace_ms)))
    if record.seen_ms >= 0:
        known.append((TAG_SEEN, int64_bytes(record.seen_ms)))
    writer.tagged_fields((*known, *record.unknown_tags))


def _authority_tags(token: int, incarnation: Incarnation | None) -> list[tuple[int, bytes]]:
    tags: list[tuple[int, bytes]] = []
    if token >= 0:
        tags.append((TAG_TOKEN, int64_bytes(token)))
    if incarnation is not None:
        body = Writer()
        write_incarnation(body, incarnation)
        tags.append((TAG_WRITER, body.done()))
    return tags


def decode_segment_record(value: bytes, *, source: str) -> SegmentRecord:
    """Decode a framed record. CorruptData: malformed, or a different frame, key or version."""
    reader = Reader(value, source)
    frame, key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != FRAME_VERSION:
        raise reader.corrupt(f"frame version {frame} is not {FRAME_VERSION}")
    if version != MESSAGE_VERSION:
        raise reader.corrupt(f"message version {version} is not {MESSAGE_VERSION}")
    record: SegmentRecord
    if key == SEGMENT_KEY:
        record = _read_segment(reader)
    elif key == SEGMENT_UPDATE_KEY:
        record = _read_update(reader)
    elif key == PARTITION_DELETE_KEY:
        record = _read_partition_delete(reader)
    else:
        raise reader.corrupt(f"api key {key} is not a record of the metadata log")
    reader.expect_end()
    return record


def _read_segment_id(reader: Reader) -> tuple[RemoteLogSegmentId, list[tuple[int, Tags]]]:
    partition, partition_tags = read_partition(reader)
    id_ = reader.uuid()
    found = ((_IN_PARTITION, partition_tags), (_IN_SEGMENT_ID, reader.tagged_fields()))
    return RemoteLogSegmentId(partition, id_), [(where, tags) for where, tags in found if tags]


def _read_segment(reader: Reader) -> RemoteLogSegmentMetadata:
    segment_id, nested = _read_segment_id(reader)
    start_offset, end_offset = reader.int64(), reader.int64()
    broker_id = reader.int32()
    max_timestamp_ms, event_timestamp_ms = reader.int64(), reader.int64()
    epochs: list[tuple[int, int]] = []
    for index in range(reader.array_length()):
        epochs.append((reader.int32(), reader.int64()))
        if tags := reader.tagged_fields():
            nested.append((_IN_EPOCHS + index, tags))
    size_bytes = reader.int32()
    custom_metadata = reader.nullable_bytes()
    state = _segment_state(reader, reader.int8())
    known, unknown = _split(reader.tagged_fields(), _SEGMENT_TAGS)
    return RemoteLogSegmentMetadata(
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        leader_epochs=tuple(epochs),
        size_bytes=size_bytes,
        custom_metadata=custom_metadata,
        state=state,
        txn_index_empty=_tag(known, TAG_TXN_INDEX_EMPTY, Reader.boolean, False),
        token=_tag(known, TAG_TOKEN, _known_int64, -1),
        writer=_tag(known, TAG_WRITER, read_incarnation, None),
        upload_deadline_ms=_tag(known, TAG_UPLOAD_DEADLINE, _known_int64, -1),
        finished_at=_tag(known, TAG_FINISHED_AT, _known_int64, -1),
        unknown_tags=unknown,
        nested_unknown_tags=tuple(nested),
    )


def _known_int64(reader: Reader) -> int:
    """Read an int64; any negative value means "not given", like the missing tag."""
    return max(reader.int64(), -1)


def _read_update(reader: Reader) -> RemoteLogSegmentMetadataUpdate:
    segment_id, _ = _read_segment_id(reader)
    broker_id = reader.int32()
    event_timestamp_ms = reader.int64()
    custom_metadata = reader.nullable_bytes()
    state = _segment_state(reader, reader.int8())
    known, unknown = _split(reader.tagged_fields(), _UPDATE_TAGS)
    expected = _tag(known, TAG_EXPECTED_STATE, Reader.int8, None)
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment_id,
        broker_id=broker_id,
        event_timestamp_ms=event_timestamp_ms,
        custom_metadata=custom_metadata,
        state=state,
        token=_tag(known, TAG_TOKEN, _known_int64, -1),
        writer=_tag(known, TAG_WRITER, read_incarnation, None),
        expected_state=None if expected is None else _segment_state(reader, expected),
        unknown_tags=unknown,
        policy_offset=_tag(known, TAG_POLICY_OFFSET, Reader.int64, None),
        max_timestamp_ms=_tag(known, TAG_MAX_TIMESTAMP, _known_int64, -1),
    )


def _read_partition_delete(reader: Reader) -> RemotePartitionDeleteMetadata:
    partition, _ = read_partition(reader)
    broker_id = reader.int32()
    event_timestamp_ms = reader.int64()
    number = reader.int8()
    try:
        state = PartitionDeleteState(number)
    except ValueError:
        raise reader.corrupt(f"unknown partition delete state {number}") from None
    known, unknown = _split(reader.tagged_fields(), _PARTITION_DELETE_TAGS)
    return RemotePartitionDeleteMetadata(
        partition,
        broker_id,
        event_timestamp_ms,
        state,
        replaces_offset=_tag(known, TAG_REPLACES_OFFSET, _known_int64, -1),
        grace_ms=_tag(known, TAG_GRACE, _known_int64, -1),
        seen_ms=_tag(known, TAG_SEEN, _known_int64, -1),
        unknown_tags=unknown,
    )


def _segment_state(reader: Reader, number: int) -> SegmentState:
    try:
        return SegmentState(number)
    except ValueError:
        raise reader.corrupt(f"unknown segment state {number}") from None


_SEGMENT_TAGS = frozenset(
    {TAG_TXN_INDEX_EMPTY, TAG_TOKEN, TAG_WRITER, TAG_UPLOAD_DEADLINE, TAG_FINISHED_AT}
)
_UPDATE_TAGS = frozenset(
    {TAG_TOKEN, TAG_WRITER, TAG_EXPECTED_STATE, TAG_POLICY_OFFSET, TAG_MAX_TIMESTAMP}
)
_PARTITION_DELETE_TAGS = frozenset({TAG_REPLACES_OFFSET, TAG_GRACE, TAG_SEEN})


def _split(tags: Tags, known: frozenset[int]) -> tuple[dict[int, bytes], Tags]:
    return (
        {tag: value for tag, value in tags if tag in known},
        tuple((tag, value) for tag, value in tags if tag not in known),
    )


def _tag(
    known: dict[int, bytes], tag: int, read: Callable[[Reader], _Value], default: _Default
) -> _Value | _Default:
    raw = known.get(tag)
    if raw is None:
        return default
    return value_of(raw, f"tagged field {tag}", read)
