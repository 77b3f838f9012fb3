"""Plans the records that import a partition of Kafka's own metadata topic. Pure.

Every segment is imported in its state and with its custom metadata byte for byte, since the broker
goes on with it. The lineage is that of the finished segments; the first claim corrects it with the
broker's own. No log start is recorded, since the broker decides on it in delegated partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.kafka_cache import KafkaCache, knows_nothing
from rlmm.apply.claims import check_partition
from rlmm.apply.imports import IMPORTED_MAX
from rlmm.apply.segments import check_content
from rlmm.records.control_records import SegmentsImported
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows.imported import as_imported
from rlmm.rows.resolved_lineage import accepted_lineage
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

RECORD_BYTES_MAX = 256 * 1024
"""Limit of the bytes of rows in one record, unless a single row has more."""
PROBLEMS_TOLD_MAX = 5


def import_problems(partition: TopicIdPartition, cache: KafkaCache) -> list[str]:
    """Sentences about rows that the metadata log would refuse, at most PROBLEMS_TOLD_MAX."""
    wrong = check_partition(partition)
    if wrong is not None:
        return [f"{partition}: {wrong.message}"]
    problems = []
    for row in cache.rows.values():
        wrong = check_content(row)
        if wrong is not None:
            problems.append(f"{row.segment_id}: {wrong.message}")
            if len(problems) == PROBLEMS_TOLD_MAX:
                break
    return problems


def plan_import(
    partition: TopicIdPartition, cache: KafkaCache | None, *, since: int, recorded: int
) -> Iterator[SegmentsImported]:
    """The records, to be proposed in order; after any failure, again from the first.

    `cache` None: the partition is not in the topic, or is deleted. `since`: metadata offset of the
    phase SWITCHING. `recorded`: number of the partition's segments in the metadata log now.
    """
    while recorded > IMPORTED_MAX:
        yield SegmentsImported(partition, since, 0, last=False)
        recorded -= IMPORTED_MAX
    if cache is None or knows_nothing(cache):
        yield SegmentsImported(partition, since, 0, last=True)
        return
    ordered = sorted(cache.rows.values(), key=_place)
    lineage = imported_lineage(cache)
    at, parts = 0, list(_parts(ordered, since))
    for part in parts[:-1]:
        yield SegmentsImported(partition, since, at, last=False, rows=part)
        at += len(part)
    yield SegmentsImported(
        partition, since, at, last=True, rows=parts[-1], lineage=lineage, highest=highest(cache)
    )


def _place(row: RemoteLogSegmentMetadata) -> tuple[int, int, bytes]:
    return row.start_offset, row.end_offset, row.segment_id.id


def _parts(rows: Sequence[RemoteLogSegmentMetadata], since: int) -> Iterator[tuple[bytes, ...]]:
    """The encoded rows, divided into the parts of records; at least one part."""
    part: list[bytes] = []
    size_bytes = 0
    for row in rows:
        value = encode_segment_row(as_imported(row, since))
        if part and (len(part) == IMPORTED_MAX or size_bytes + len(value) > RECORD_BYTES_MAX):
            yield tuple(part)
            part, size_bytes = [], 0
        part.append(value)
        size_bytes += len(value)
    yield tuple(part)


def imported_lineage(cache: KafkaCache) -> Epochs:
    """The lineage by the leader epochs of the finished segments."""
    rows = cache.rows.values()
    return accepted_lineage(
        each for each in rows if each.state is SegmentState.COPY_SEGMENT_FINISHED
    )


def highest(cache: KafkaCache) -> Epochs:
    """The highest offset ever copied of each epoch, also of segments that were deleted. Epochs
    without a record are left out; for them Kafka has -1.
    """
    return tuple(
        EpochEntry(epoch, segments.highest_offset)
        for epoch, segments in sorted(cache.epochs.items())
        if segments.highest_offset is not None and segments.highest_offset >= 0
    )
