"""Typed reads of single rows, and the two offsets on which copying depends.

Only this file defines highest copied and next offset (`highest_copied`, `next_offset`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.lineage import epoch_bounds
from rlmm.partition_state import (
    UNKNOWN_OFFSET,
    LostOffsets,
    MeasuredTime,
    Restart,
    TopicPolicy,
    Totals,
)
from rlmm.records.fixed_layout import decode_segment_row as decode_segment_row
from rlmm.rows import keys, values
from rlmm.rows.partitions import PartitionRow, decode_partition
from rlmm.rows.rows import RowReader, lacks, last_row, prefix_end, read_decoded
from rlmm.segment import RemoteLogSegmentMetadata

FIRST_FEATURE_LEVEL = 1
LINEAGE_REMEMBERED_BYTES_MAX = 1_024


def read_partition_row(rows: RowReader, partition: TopicIdPartition) -> PartitionRow | None:
    return read_decoded(rows, keys.partition_key(partition), decode_partition)


def read_lineage(rows: RowReader, partition: TopicIdPartition) -> Epochs:
    value = rows.get(keys.lineage_key(partition))
    if value is None:
        return ()
    if len(value) <= LINEAGE_REMEMBERED_BYTES_MAX:
        return _remembered_lineage(value)
    return values.decode_lineage(value)


@lru_cache(maxsize=4_096)
def _remembered_lineage(value: bytes) -> Epochs:
    """The decoded lineage, cached by the bytes, which each look-up reads: never outdated."""
    return values.decode_lineage(value)


def read_segment(rows: RowReader, segment: Uuid) -> RemoteLogSegmentMetadata | None:
    value = rows.get(keys.segment_key(segment))
    return None if value is None else decode_segment_row(value)


def read_totals(rows: RowReader) -> Totals:
    return read_decoded(rows, keys.TOTALS_KEY, values.decode_totals) or Totals()


def read_restart(rows: RowReader) -> Restart | None:
    """The restart from a snapshot with which this cluster began; None: it began empty."""
    value = rows.get(keys.RESTART_KEY)
    return None if value is None else values.decode_restart(value)


def is_adopting(rows: RowReader, partition: TopicIdPartition) -> bool:
    """True if the store's segments of the partition are still to be recorded after a restart."""
    if rows.get(keys.RESTART_KEY) is None:
        return False
    return rows.get(keys.adopted_key(partition)) is None


def read_policy(rows: RowReader, topic: str) -> TopicPolicy:
    value = rows.get(keys.topic_policy_key(topic))
    return TopicPolicy() if value is None else values.decode_policy(value)


def read_feature_level(rows: RowReader) -> tuple[int, int]:
    """(level, metadata offset of the record that set it); (1, -1) if none did."""
    value = rows.get(keys.FEATURE_LEVEL_KEY)
    if value is None:
        return FIRST_FEATURE_LEVEL, UNKNOWN_OFFSET
    return values.decode_feature_level(value)


def read_record_time(rows: RowReader) -> int | None:
    """The highest batch timestamp, Unix time in ms, for display; None before any record."""
    return read_decoded(rows, keys.RECORD_TIME_KEY, values.decode_offset)


def read_measured_time(rows: RowReader) -> MeasuredTime:
    return read_decoded(rows, keys.MEASURED_TIME_KEY, values.decode_measured_time) or MeasuredTime()


def read_lost_ranges(
    rows: RowReader, partition: TopicIdPartition, start: int = 0, end: int | None = None
) -> Iterator[LostOffsets]:
    """The lost ranges that reach `start` or above and begin at or below `end`, ascending."""
    prefix = keys.lost_range_prefix(partition)
    if lacks(rows, prefix):
        return
    before = last_row(rows, prefix, keys.lost_range_key(partition, start))
    if before is not None and (lost := _lost_range(before)).end >= start:
        yield lost
    stop = prefix_end(prefix) if end is None else keys.lost_range_key(partition, end + 1)
    for row in rows.scan(keys.lost_range_key(partition, start), stop):
        yield _lost_range(row)


def _lost_range(row: tuple[bytes, bytes]) -> LostOffsets:
    end, why = values.decode_lost_range(row[1])
    return LostOffsets(keys.start_of_lost_range_key(row[0]), end, why)


def highest_recorded(rows: RowReader, partition: TopicIdPartition, epoch: int) -> int | None:
    """The highest offset ever copied in this epoch, even if deleted since; None: none was."""
    value = rows.get(keys.highest_copied_key(partition, epoch))
    return None if value is None else values.decode_offset(value)


def highest_copied(
    rows: RowReader, partition: TopicIdPartition, lineage: Epochs
) -> tuple[int, int] | None:
    """(offset, epoch) of the highest copied record within the lineage; None: no record is copied.

    The lineage is walked downwards to the first epoch with a recorded highest offset h; the result
    is the smaller of h and the last offset of that epoch in the lineage.
    """
    if lineage:
        # Nearly always the last epoch has one: a read by key, without a search.
        newest, start = lineage[-1]
        recorded = highest_recorded(rows, partition, newest)
        if recorded is not None and recorded >= start:
            return recorded, newest
    prefix = keys.highest_copied_prefix(partition)
    for key, value in rows.scan(prefix, prefix_end(prefix), reverse=True):
        epoch = keys.epoch_of_highest_copied_key(key)
        bounds = epoch_bounds(lineage, epoch)
        if bounds is None:
            continue
        highest = min(values.decode_offset(value), bounds[1])
        if highest >= bounds[0]:
            return highest, epoch
    return None


def next_offset(
    rows: RowReader, partition: TopicIdPartition, lineage: Epochs, log_start_offset: int
) -> int:
    """The offset that the next copy has to contain: the greater of highest copied + 1 and log
    start, after any lost ranges there. -1: no record is copied and no log start is recorded.
    """
    highest = highest_copied(rows, partition, lineage)
    if highest is None and log_start_offset < 0:
        return UNKNOWN_OFFSET
    offset = max(log_start_offset, 0 if highest is None else highest[0] + 1)
    return past_lost_ranges(rows, partition, offset)


def past_lost_ranges(rows: RowReader, partition: TopicIdPartition, offset: int) -> int:
    prefix = keys.lost_range_prefix(partition)
    if lacks(rows, prefix):
        return offset
    while True:
        row = last_row(rows, prefix, keys.lost_range_key(partition, offset + 1))
        if row is None or (end := _lost_range(row).end) < offset:
            return offset
        offset = end + 1
