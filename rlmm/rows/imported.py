"""Segment rows that an import from Kafka's own metadata topic writes. Pure.

They are like those of a segment that a node recorded in delegated mode, whose claim has the token
of the import, so they do not count as history from before that mode. The node and the upload that
copied the segment are unknown.
"""

from __future__ import annotations

from kafka_formats.kafka_uuid import ZERO_UUID
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState

IMPORTER = Incarnation(-1, ZERO_UUID, 0)
"""The writer of every imported segment."""


def as_imported(row: RemoteLogSegmentMetadata, since: int) -> RemoteLogSegmentMetadata:
    """A segment of the topic as a row of the phase SWITCHING that began at metadata offset `since`.
    That is below every later offset, and equal for all segments, so that a repeated import has the
    same result.
    """
    finished = row.state is SegmentState.COPY_SEGMENT_FINISHED
    # Not `replace`, which takes five times as long: there are millions.
    return RemoteLogSegmentMetadata(
        row.segment_id, row.start_offset, row.end_offset, row.broker_id, row.max_timestamp_ms,
        row.event_timestamp_ms, row.leader_epochs, row.size_bytes, row.custom_metadata, row.state,
        row.txn_index_empty, since, IMPORTER, 0, since if finished else -1, row.unknown_tags,
        row.nested_unknown_tags,
    )  # fmt: skip


def is_row_of(row: RemoteLogSegmentMetadata, since: int) -> bool:
    """True if `as_imported` wrote the row."""
    finished = row.state is SegmentState.COPY_SEGMENT_FINISHED
    expected = (since, IMPORTER, 0, since if finished else -1)
    return (row.token, row.writer, row.upload_deadline_ms, row.finished_at) == expected
