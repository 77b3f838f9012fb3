"""Records of the metadata log as Kafka's own manager writes them, without Strandline's fields."""

from __future__ import annotations

from dataclasses import replace

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.records.fixed_layout import partition_in_record
from rlmm.records.record_fields import Tags
from rlmm.records.segment_records import (
    SEGMENT_FRONT,
    TAG_TOKEN,
    SegmentRecord,
    decode_segment_record,
)
from rlmm.records.short_lengths import read_short_length
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

_FRONT_BYTES = len(SEGMENT_FRONT)
_PARTITION_BYTES = 21  # topic id, number, no tags


def as_kafka_writes(record: SegmentRecord, custom_metadata: bytes | None = None) -> SegmentRecord:
    """The record without Strandline's tagged fields; Kafka's own stay, even unknown ones. An update
    gets this `custom_metadata`.
    """
    unknown_tags = _kafkas(record.unknown_tags)
    if isinstance(record, RemoteLogSegmentMetadata):
        nested = ((where, _kafkas(tags)) for where, tags in record.nested_unknown_tags)
        return replace(
            record,
            token=-1,
            writer=None,
            upload_deadline_ms=-1,
            finished_at=-1,
            unknown_tags=unknown_tags,
            nested_unknown_tags=tuple((where, tags) for where, tags in nested if tags),
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdate):
        return replace(
            record,
            custom_metadata=custom_metadata,
            token=-1,
            writer=None,
            expected_state=None,
            policy_offset=None,
            max_timestamp_ms=-1,
            unknown_tags=unknown_tags,
        )
    return replace(record, replaces_offset=-1, grace_ms=-1, seen_ms=-1, unknown_tags=unknown_tags)


def partition_of_value(value: bytes) -> TopicIdPartition:
    """The partition of an encoded record. CorruptData: not a record."""
    try:
        length, at = read_short_length(value, _FRONT_BYTES)
        found = partition_in_record(value[_FRONT_BYTES : at + length - 1 + _PARTITION_BYTES])
    except IndexError:
        found = None
    if found is not None and length > 0:
        return found
    record = decode_segment_record(value, source="outbox row")
    if isinstance(record, RemotePartitionDeleteMetadata):
        return record.partition
    return record.segment_id.partition


def _kafkas(tags: Tags) -> Tags:
    return tuple((tag, value) for tag, value in tags if tag < TAG_TOKEN)
