"""Decides if the broker may still finish an unfinished copy of a delegated partition. Pure.

Between the broker's calls (add, copy, finish) such a row is COPY_SEGMENT_STARTED although nothing
of it runs on this node: it looks like a copy that the broker gave up. A wrong answer loses nothing,
since updates compare the row's state; it costs a copy made again.
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
    """True while the row is COPY_SEGMENT_STARTED under the claim `token` by the process `me`, the
    session that added it is the present `session`, and its upload deadline is not before
    `overdue_ms` (Unix time), the deadline before which no upload can send any more. `added_by`
    None: the session is not remembered, and not compared.
    """
    if row.state is not SegmentState.COPY_SEGMENT_STARTED or (row.token, row.writer) != (token, me):
        return False
    if added_by is not None and added_by != session:
        return False
    return row.upload_deadline_ms >= overdue_ms
