"""Segment rows as an import from Kafka's own metadata topic leaves them. Pure.

They are like those of a segment that a node recorded in delegated mode, whose claim has the token
of the import: so nothing takes them for history from before the mode. Which node and which upload
is not known.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_formats.kafka_uuid import ZERO_UUID
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState

IMPORTER = Incarnation(-1, ZERO_UUID, 0)
"""The writer of every imported segment."""


def as_imported(row: RemoteLogSegmentMetadata, since: int) -> RemoteLogSegmentMetadata:
    """A segment of the topic as a row of the phase SWITCHING that began at metadata offset `since`:
    below every later offset, and equal for all, so that an import that is repeated ends the same.
    """
    finished = row.state is SegmentState.COPY_SEGMENT_FINISHED
    return replace(
        row,
        token=since,
        writer=IMPORTER,
        upload_deadline_ms=0,
        finished_at=since if finished else -1,
    )


def is_imported(row: RemoteLogSegmentMetadata) -> bool:
    """True for a segment that a broker copied under Kafka's own metadata manager."""
    return row.writer == IMPORTER
