"""Makes the metadata rows of one partition from its segments in the bucket. Pure.

The rows are like those of a node that copied these segments and had its claim voided: every
finished segment with its intervals, coverage by the rules of `rlmm/rows/coverage.py`, highest
copied offsets by epoch, and a lost range wherever no segment serves offsets above the lowest one.
State that is in no manifest gets the safest value: no claim, and the lowest served offset as log
start.

Invariant: a segment is in the rows only if look-ups reach a part of it. The first pass of retention
would delete any other as unreferenced; without a row it is unknown, and stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.outcome import Draft
from rlmm.partition_state import Claim, LostOffsets, Mode
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows import keys, values
from rlmm.rows.coverage import cover_all, epoch_ranges, ranges_in_lineage, uncovered_ranges
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import highest_copied
from rlmm.rows.resolved_lineage import ResolvedLineage
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState

WHY_LOST = "not in the bucket when the metadata was rebuilt from it"
OFFSETS_BESIDES_SEGMENTS = 2
"""Metadata offsets of a partition besides one for each segment: those of the claim and the mode."""

NOWHERE = Uuid(bytes(16))


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """A rebuilt partition. `rows` are in key order, without those of the whole state (totals)."""

    partition: TopicIdPartition
    mode: Mode
    rows: tuple[tuple[bytes, bytes], ...]
    segments: int
    size_bytes: int
    log_start_offset: int
    highest_copied: tuple[int, int]
    lost: tuple[LostOffsets, ...]


def offsets_taken(segments: int) -> int:
    """Number of metadata offsets for a partition with this many segments."""
    return segments + OFFSETS_BESIDES_SEGMENTS


def first_offsets(
    partitions: Collection[tuple[str, int, int, int]],
) -> tuple[dict[tuple[str, int], int], int]:
    """The first metadata offset of each (topic id, partition), and the end of the last, from
    (topic id, partition, segments, latest copy in ms).

    Among topics with the same name the one with the latest copy gets the highest offsets, because
    readers that give no id get the last one: as in a catalogue of manifests.
    """
    latest: dict[str, int] = {}
    for topic_id, _, _, copied_ms in partitions:
        latest[topic_id] = max(copied_ms, latest.get(topic_id, copied_ms))
    at, first = 0, {}
    for topic_id, partition, segments, _ in sorted(
        partitions, key=lambda each: (latest[each[0]], each[0], each[1])
    ):
        first[topic_id, partition] = at
        at += offsets_taken(segments)
    return first, at


def partition_rows(
    segments: Sequence[RemoteLogSegmentMetadata],
    lineage: ResolvedLineage,
    mode: Mode,
    *,
    first_offset: int,
) -> RebuiltPartition | None:
    """Rows for those of `segments` that the lineage reaches; None if it reaches no segment.

    They use metadata offsets from `first_offset` on: for the claim, for the segments in the order
    of their copies, for the mode.
    """
    left_out = lineage.diverged | lineage.in_doubt
    kept = [each for each in segments if each.segment_id.id not in left_out]
    if not kept:
        return None
    partition = kept[0].segment_id.partition
    kept.sort(key=lambda each: (each.event_timestamp_ms, each.start_offset, each.segment_id.id))
    rows = OverlayRows(MemoryRows())
    finished = [
        replace(each, state=SegmentState.COPY_SEGMENT_FINISHED, finished_at=number)
        for number, each in enumerate(kept, start=first_offset + 1)
    ]
    for segment in finished:
        rows.put(keys.segment_key(segment.segment_id.id), encode_segment_row(segment))
    cover_all(rows, finished)
    _put_highest_copied(rows, partition, finished)
    rows.put(keys.lineage_key(partition), values.encode_lineage(lineage.epochs))
    log_start = min(
        ranges_in_lineage(lineage.epochs, epoch_ranges(each))[0][0] for each in finished
    )
    highest = highest_copied(rows, partition, lineage.epochs)
    assert highest is not None, "every segment kept has an offset in the lineage"
    lost = tuple(
        LostOffsets(start, end, WHY_LOST)
        for start, end in uncovered_ranges(rows, partition, lineage.epochs, log_start, highest[0])
    )
    for each in lost:
        rows.put(
            keys.lost_range_key(partition, each.start),
            values.encode_lost_range(each.end, each.why),
        )
    row = _partition_row(finished, lineage, mode, log_start, first_offset)
    draft = Draft(rows, first_offset, 0)
    draft.put_partition(partition, row)
    rows.put(keys.topic_name_key(partition), values.encode_offset(first_offset))
    written = tuple((key, value) for key, value in rows.writes() if value is not None)
    return RebuiltPartition(
        partition, mode, written, len(finished), row.size_bytes, log_start, highest, lost
    )


def _partition_row(
    finished: Sequence[RemoteLogSegmentMetadata],
    lineage: ResolvedLineage,
    mode: Mode,
    log_start: int,
    first_offset: int,
) -> PartitionRow:
    newest = finished[-1]
    # Below the last epoch, whose leader may still correct the lineage; older ones may not.
    claim = Claim(
        token=first_offset,
        leader_epoch=lineage.epochs[-1].epoch - 1,
        incarnation=Incarnation(newest.broker_id, NOWHERE, 0),
        claim_number=0,
        timestamp_ms=max(newest.event_timestamp_ms, 0),
    )
    return PartitionRow(
        newest.segment_id.partition.topic,
        mode,
        # Above the claim: the next claimant decides which offsets count as copied, as after a mode
        # change.
        mode_offset=first_offset + len(finished) + 1,
        claim=claim,
        claim_voided=True,
        log_start_offset=log_start,
        copy_finished=len(finished),
        size_bytes=sum(each.size_bytes for each in finished),
    )


def _put_highest_copied(
    rows: OverlayRows, partition: TopicIdPartition, finished: Sequence[RemoteLogSegmentMetadata]
) -> None:
    highest: dict[int, int] = {}
    for segment in finished:
        for epoch, _, end in epoch_ranges(segment):
            highest[epoch] = max(end, highest.get(epoch, end))
    for epoch, end in highest.items():
        rows.put(keys.highest_copied_key(partition, epoch), values.encode_offset(end))
