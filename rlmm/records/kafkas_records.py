"""Records of the metadata log as Kafka's own manager writes them, without all that is ours."""

from __future__ import annotations

from dataclasses import replace

from rlmm.records.record_fields import Tags
from rlmm.records.segment_records import TAG_TOKEN, SegmentRecord
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate


def as_kafka_writes(record: SegmentRecord, custom_metadata: bytes | None = None) -> SegmentRecord:
    """The record without our tagged fields; Kafka's own stay, also unknown ones. An update gets
    this `custom_metadata`.
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


def _kafkas(tags: Tags) -> Tags:
    return tuple((tag, value) for tag, value in tags if tag < TAG_TOKEN)
