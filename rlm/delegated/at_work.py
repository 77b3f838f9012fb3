"""Decides if an unfinished copy of a delegated partition is still the broker's work. Pure.

Between add, copy and finish such a row is COPY_SEGMENT_STARTED with nothing under way here, as a
copy is that somebody gave up. Compare and set keeps a wrong answer safe, but not cheap.
"""

from __future__ import annotations

from kafka_formats.kafka_uuid import Uuid
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState


def is_at_work(
    row: RemoteLogSegmentMetadata,
    *,
    token: int,
    me: Incarnation,
    added_by: Uuid | None,
    session: Uuid | None,
    overdue_ms: int,
) -> bool:
    """True while the row's claim (`token` is the present one), its writer, the session that added
    it, and its time stand. `added_by` None: not remembered; `overdue_ms`: no upload whose deadline
    was before it can send any more.
    """
    if row.state is not SegmentState.COPY_SEGMENT_STARTED or (row.token, row.writer) != (token, me):
        return False
    if added_by is not None and added_by != session:
        return False
    return row.upload_deadline_ms >= overdue_ms
