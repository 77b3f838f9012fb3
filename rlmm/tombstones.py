"""Which segments the log deleted to the end: their ids are kept for 30 days of record time."""

from __future__ import annotations

from rlmm import row_keys as keys
from rlmm.rows import RowReader
from rlmm.segment import RemoteLogSegmentId


def is_deleted_segment(rows: RowReader, segment_id: RemoteLogSegmentId) -> bool:
    """True for a segment of exactly this partition. Any other id that has no row is foreign: never
    delete its objects.
    """
    buried = rows.get(keys.segment_tombstone_key(segment_id.id))
    return buried == keys.partition_bytes(segment_id.partition)
