"""Encodes and decodes segment rows fast, in the layout that nearly every row has.

A row is the framed record of `rlmm/records/segment_records.py`, which takes many small steps. Rows
that this program writes share one layout (no unknown tagged fields, ours in ascending order), which
takes three; those of Kafka's own manager are read in the same way, without our fields. A row that
differs in any byte is decoded by the general code, so that one place decides what is valid, and
unknown fields are kept. Updates are read in the same way.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from kafka_formats.errors import InternalError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.records.segment_records import (
    SEGMENT_FRONT,
    UPDATE_FRONT,
    decode_segment_record,
    encode_segment_record,
)
from rlmm.records.short_lengths import LENGTH_MAX, SHORT_LENGTHS, read_short_length
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

_FRONT_BYTES = len(SEGMENT_FRONT)
_EPOCHS_MAX = 0x7F  # the largest uvarint of one byte, which is the count + 1

# Topic id, partition, no tags, segment id, no tags, offsets, broker, times, epoch count + 1.
_HEAD = struct.Struct(">20sB16sBqqiqqB")
_PLACE = struct.Struct(">iB16sBqqiqqB")  # the same fields after the topic id
_PARTITION = struct.Struct(">16si")
_EPOCH = struct.Struct(">iqB")
_SIZE = struct.Struct(">i")
_STATE = struct.Struct(">bB")
NO_TXN_INDEX = b"\x00\x01\x01"

# The tags token, writer, upload deadline, and finished_at if it is finished, each with its
# length before its value.
_TOKEN, _WRITER = b"\x90\x4e\x08", b"\x91\x4e\x1c"
DEADLINE, _FINISHED = b"\x92\x4e\x08", b"\x93\x4e\x08"
_TAGS = struct.Struct(">3sq3s28s3sq")
_FINISHED_TAG = struct.Struct(">3sq")
_INCARNATION = struct.Struct(">i16sq")
_TAG_COUNT = 3

# An update: topic id, partition, no tags, segment id, no tags, broker, time.
_UPDATE_HEAD = struct.Struct(">20sB16sBiq")
_TOKEN_TAG = struct.Struct(">3sq")
_WRITER_TAG_BYTES = len(_WRITER) + _INCARNATION.size
_EXPECTED = b"\x94\x4e\x01"
_STATES = tuple(SegmentState)
_uuid = bytes.__new__  # without a check: the layout has sixteen bytes


# The segment decoded last, with its bytes, if encoding it gives the same bytes: a new segment is
# read from a record and then written as a row.
_decoded: list[tuple[RemoteLogSegmentMetadata | None, bytes]] = [(None, b"")]


def encode_segment_row(segment: RemoteLogSegmentMetadata) -> bytes:
    """Encode a segment with its frame. InvalidRequest: a number does not fit its field."""
    decoded, value = _decoded[0]
    if decoded is segment:
        return value
    return encode_usual(segment) or encode_segment_record(segment)


def encode_usual(segment: RemoteLogSegmentMetadata) -> bytes | None:
    """The row of a segment in the usual layout; None if the segment does not fit it."""
    writer, custom = segment.writer, segment.custom_metadata
    if (
        writer is None
        or segment.token < 0
        or segment.upload_deadline_ms < 0
        or segment.unknown_tags
        or segment.nested_unknown_tags
    ):
        return None
    partition, epochs = segment.segment_id.partition, segment.leader_epochs
    custom_length = 0 if custom is None else len(custom) + 1
    no_txn_index, finished_at = segment.txn_index_empty, segment.finished_at
    try:
        topic = partition.topic.encode()
        if max(len(topic) + 1, custom_length) > LENGTH_MAX or len(epochs) >= _EPOCHS_MAX:
            return None
        return b"".join((
            SEGMENT_FRONT, SHORT_LENGTHS[len(topic) + 1], topic,
            partition.topic_id, _PLACE.pack(
                partition.partition, 0, segment.segment_id.id, 0,
                segment.start_offset, segment.end_offset, segment.broker_id,
                segment.max_timestamp_ms, segment.event_timestamp_ms, len(epochs) + 1,
            ),
            *[_EPOCH.pack(epoch, offset, 0) for epoch, offset in epochs],
            _SIZE.pack(segment.size_bytes), SHORT_LENGTHS[custom_length], custom or b"",
            _STATE.pack(segment.state, _TAG_COUNT + no_txn_index + (finished_at >= 0)),
            NO_TXN_INDEX if no_txn_index else b"",
            _TAGS.pack(
                _TOKEN, segment.token,
                _WRITER, _INCARNATION.pack(
                    writer.node_id, writer.directory_id, writer.boot_counter
                ),
                DEADLINE, segment.upload_deadline_ms,
            ),
            _FINISHED_TAG.pack(_FINISHED, finished_at) if finished_at >= 0 else b"",
        ))  # fmt: skip
    except (struct.error, UnicodeEncodeError):
        return None


def decode_segment_row(value: bytes) -> RemoteLogSegmentMetadata:
    """Decode the segment of a row. CorruptData: not a segment record."""
    found = decode_usual(value)
    if found is not None:
        return found
    record = decode_segment_record(value, source="segment row")
    if not isinstance(record, RemoteLogSegmentMetadata):
        raise InternalError(f"a segment row holds a {type(record).__name__}")
    return record


def decode_usual(value: bytes) -> RemoteLogSegmentMetadata | None:
    """The segment; None unless the bytes have the usual layout throughout."""
    try:
        length, topic_at = read_short_length(value, _FRONT_BYTES)
        if not value.startswith(SEGMENT_FRONT) or length < 1:
            return None
        at = topic_at + length - 1
        (partition, tags, id_, id_tags, start, end, broker, max_ms, event_ms, epochs) = (
            _HEAD.unpack_from(value, at)
        )
        if tags or id_tags or not 0 < epochs <= _EPOCHS_MAX:
            return None
        topic = value[topic_at:at]
        at += _HEAD.size
        leader_epochs = []
        for _ in range(epochs - 1):
            epoch, offset, epoch_tags = _EPOCH.unpack_from(value, at)
            if epoch_tags:
                return None
            leader_epochs.append((epoch, offset))
            at += _EPOCH.size
        (size_bytes,) = _SIZE.unpack_from(value, at)
        length, at = read_short_length(value, at + _SIZE.size)
        if length < 0:
            return None
        custom = value[at : at + length - 1] if length else None
        at += length - 1 if length else 0
        state, count = value[at], value[at + 1]
        at += 2
        no_txn_index = value.startswith(NO_TXN_INDEX, at)
        if no_txn_index:
            at += len(NO_TXN_INDEX)
        own = _own_fields(value, at, count - no_txn_index)
        if own is None:
            return None
        token, writer, deadline, finished, as_written = own
        segment = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(_partition(topic, partition), _uuid(Uuid, id_)),
            start, end, broker, max_ms, event_ms,
            tuple(leader_epochs), size_bytes, custom, _STATES[state], no_txn_index,
            token, writer, deadline, finished,
        )  # fmt: skip
        if as_written:
            _decoded[0] = segment, value  # every tag in it is one that encoding writes
        return segment
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _own_fields(
    value: bytes, at: int, count: int
) -> tuple[int, Incarnation | None, int, int, bool] | None:
    """Token, writer, upload deadline and `finished_at` from the last `count` tagged fields, and
    True if encoding writes them so; None unless they end the bytes. Kafka's own manager writes
    none.
    """
    if not count and at == len(value):
        return -1, None, -1, NOT_FINISHED, False
    token_tag, token, writer_tag, writer, deadline_tag, deadline = _TAGS.unpack_from(value, at)
    if (token_tag, writer_tag, deadline_tag) != _OUR_TAGS:
        return None
    at += _TAGS.size
    finished = NOT_FINISHED
    if count == _TAG_COUNT + 1:
        finished_tag, finished = _FINISHED_TAG.unpack_from(value, at)
        if finished_tag != _FINISHED:
            return None
        at += _FINISHED_TAG.size
    elif count != _TAG_COUNT:
        return None
    if at != len(value):
        return None
    as_written = token >= 0 and deadline >= 0 and (finished >= 0 or count == _TAG_COUNT)
    return max(token, -1), _incarnation(writer), max(deadline, -1), max(finished, -1), as_written


def decode_usual_update(value: bytes) -> RemoteLogSegmentMetadataUpdate | None:
    """The update; None unless the bytes have the usual layout throughout."""
    try:
        length, topic_at = read_short_length(value, _FRONT_BYTES)
        if not value.startswith(UPDATE_FRONT) or length < 1:
            return None
        at = topic_at + length - 1
        partition, tags, id_, id_tags, broker, event_ms = _UPDATE_HEAD.unpack_from(value, at)
        topic = value[topic_at:at]
        length, at = read_short_length(value, at + _UPDATE_HEAD.size)
        if tags or id_tags or length < 0:
            return None
        custom = value[at : at + length - 1] if length else None
        at += length - 1 if length else 0
        state, count = value[at], value[at + 1]
        at += 2
        token, writer, expected = -1, None, None
        if value.startswith(_TOKEN, at):
            token = _TOKEN_TAG.unpack_from(value, at)[1]
            at += _TOKEN_TAG.size
            count -= 1
        if value.startswith(_WRITER, at):
            writer = _incarnation(value[at + len(_WRITER) : at + _WRITER_TAG_BYTES])
            at += _WRITER_TAG_BYTES
            count -= 1
        if value.startswith(_EXPECTED, at):
            expected = _STATES[value[at + len(_EXPECTED)]]
            at += len(_EXPECTED) + 1
            count -= 1
        if count or at != len(value):
            return None
        return RemoteLogSegmentMetadataUpdate(
            RemoteLogSegmentId(_partition(topic, partition), _uuid(Uuid, id_)),
            broker, event_ms, custom, _STATES[state], max(token, -1), writer, expected,
        )  # fmt: skip
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def authority_bytes(token: int, writer: Incarnation) -> bytes:
    """Token and writer as in a record of the usual layout."""
    incarnation = _INCARNATION.pack(writer.node_id, writer.directory_id, writer.boot_counter)
    return _TOKEN_TAG.pack(_TOKEN, token) + _WRITER + incarnation


def partition_in_record(head: bytes) -> TopicIdPartition | None:
    """The partition of a record of the usual layout (topic, topic id, number, no tags), or None."""
    try:
        length, at = read_short_length(head, 0)
        end = at + length - 1
        if length < 1 or len(head) != end + _PARTITION.size + 1 or head[-1]:
            return None
        return _partition(head[at:end], head[end:-1])
    except (IndexError, UnicodeDecodeError):
        return None


_OUR_TAGS = (_TOKEN, _WRITER, DEADLINE)
NOT_FINISHED = -1


@lru_cache(maxsize=4_096)
def _partition(topic: bytes, rest: bytes) -> TopicIdPartition:
    topic_id, number = _PARTITION.unpack(rest)
    return TopicIdPartition(topic.decode("utf-8"), Uuid(topic_id), number)


@lru_cache(maxsize=1_024)
def _incarnation(raw: bytes) -> Incarnation:
    node_id, directory_id, boot_counter = _INCARNATION.unpack(raw)
    return Incarnation(node_id, Uuid(directory_id), boot_counter)
