"""A question that only tests ask."""

from __future__ import annotations

from kafka_formats.kafka_uuid import Uuid
from rlmm.rows import keys
from rlmm.rows.rows import RowReader


def is_segment_tombstone(rows: RowReader, segment_uuid: Uuid) -> bool:
    """True if the log knew this id and its deletion is finished, of whichever partition it was."""
    return rows.get(keys.segment_tombstone_key(segment_uuid)) is not None
