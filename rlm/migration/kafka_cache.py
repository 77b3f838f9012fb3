"""The segments of one partition by the rules of Kafka's own manager. Pure.

These are Kafka's rules, not those of the metadata log (`rlmm/apply/segments.py`), so that the rows
in the metadata log can be compared with those that brokers have. Sources: RemoteLogMetadataCache,
RemoteLogLeaderEpochState, RemotePartitionMetadataStore.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_formats.kafka_uuid import Uuid
from rlmm.segment import (
    SEGMENT_TRANSITIONS,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)


class Ignored(StrEnum):
    """The reason why Kafka's manager ignores a record. The values are stable."""

    UNKNOWN_SEGMENT = "unknown_segment"
    """An update of a segment without a first record, or whose deletion is finished."""
    INVALID_TRANSITION = "invalid_transition"
    NOT_A_START = "not_a_start"
    """A first record whose state is not COPY_SEGMENT_STARTED."""
    PARTITION_DELETED = "partition_deleted"
    """A segment of a partition whose deletion is finished."""


@dataclass(slots=True)
class EpochSegments:
    """The finished segments of one leader epoch by the epoch's first offset in them.

    `unreferenced` are the other segments with the epoch: not finished, being deleted, or hidden by
    a segment that finished later. `highest_offset` never decreases, also not after deletions; None
    if no segment of the epoch ever finished.
    """

    starts: list[int] = field(default_factory=list)
    by_start: dict[int, Uuid] = field(default_factory=dict)
    unreferenced: set[Uuid] = field(default_factory=set)
    highest_offset: int | None = None

    def finished(self, start: int, id_: Uuid, end: int) -> None:
        """Add a finished segment with the epoch from `start` to `end` (inclusive). It hides the
        segments that begin at or after its start, unless the epoch's highest offset is above `end`.
        """
        highest = self.highest_offset
        while self.starts and self.starts[-1] >= start and highest is not None and highest <= end:
            self.unreferenced.add(self.by_start.pop(self.starts.pop()))
        if start not in self.by_start:
            insort(self.starts, start)
        self.by_start[start] = id_
        self.unreferenced.discard(id_)
        self.highest_offset = end if highest is None else max(highest, end)

    def deleting(self, start: int, id_: Uuid) -> None:
        """Move a segment whose deletion began to the unreferenced ones."""
        if self.by_start.get(start) == id_:
            del self.by_start[start]
            self.starts.pop(bisect_right(self.starts, start) - 1)
        self.unreferenced.add(id_)

    def floor(self, offset: int) -> Uuid | None:
        """The segment with the highest start at or below the offset."""
        at = bisect_right(self.starts, offset)
        return self.by_start[self.starts[at - 1]] if at else None


class KafkaCache:
    """One partition. Apply the records in the order of the topic."""

    def __init__(self) -> None:
        self._rows: dict[Uuid, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, EpochSegments] = {}

    @property
    def rows(self) -> Mapping[Uuid, RemoteLogSegmentMetadata]:
        """All segments whose deletion is not finished, by id."""
        return self._rows

    @property
    def epochs(self) -> Mapping[int, EpochSegments]:
        """The segments of each leader epoch. An epoch is never removed."""
        return self._epochs

    def add(self, row: RemoteLogSegmentMetadata) -> Ignored | None:
        """Apply a segment's first record; returns the reason if Kafka ignores it."""
        if row.state is not SegmentState.COPY_SEGMENT_STARTED:
            return Ignored.NOT_A_START
        id_ = row.segment_id.id
        known = self._rows.get(id_)
        if row.state not in SEGMENT_TRANSITIONS[None if known is None else known.state]:
            return Ignored.INVALID_TRANSITION
        for epoch, _, _ in spans(row):
            self._epochs.setdefault(epoch, EpochSegments()).unreferenced.add(id_)
        self._rows[id_] = row
        return None

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> Ignored | None:
        """Apply a later record of a segment; returns the reason if Kafka ignores it. The record's
        custom metadata replaces the earlier one, also if it has none.
        """
        id_ = update.segment_id.id
        known = self._rows.get(id_)
        if known is None:
            return Ignored.UNKNOWN_SEGMENT
        state = update.state
        if state is SegmentState.COPY_SEGMENT_STARTED or (
            state not in SEGMENT_TRANSITIONS[known.state]
        ):
            return Ignored.INVALID_TRANSITION
        # Not `replace`, which takes five times as long: there are millions of records.
        row = RemoteLogSegmentMetadata(
            known.segment_id, known.start_offset, known.end_offset, update.broker_id,
            known.max_timestamp_ms, update.event_timestamp_ms, known.leader_epochs,
            known.size_bytes, update.custom_metadata, state, known.txn_index_empty, known.token,
            known.writer, known.upload_deadline_ms, known.finished_at, known.unknown_tags,
            known.nested_unknown_tags,
        )  # fmt: skip
        self._rows[id_] = row
        for epoch, start, end in spans(row):
            segments = self._epochs.setdefault(epoch, EpochSegments())
            if state is SegmentState.COPY_SEGMENT_FINISHED:
                segments.finished(start, id_, end)
            elif state is SegmentState.DELETE_SEGMENT_STARTED:
                segments.deleting(start, id_)
            else:
                segments.unreferenced.discard(id_)
        if state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self._rows[id_]
        return None

    def look_up(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The segment from which a broker reads this offset of the epoch; None if it finds none. A
        longer segment that is hidden by a shorter one with a higher start is not found.
        """
        segments = self._epochs.get(epoch)
        id_ = None if segments is None else segments.floor(offset)
        if id_ is None:
            return None
        row = self._rows[id_]
        end = next(end for each, _, end in spans(row) if each == epoch)
        return row if offset <= end else None

    def highest_offset(self, epoch: int) -> int | None:
        """The highest offset of the epoch in all segments that ever finished; None if none did."""
        segments = self._epochs.get(epoch)
        return None if segments is None else segments.highest_offset


def knows_nothing(cache: KafkaCache) -> bool:
    """True if the partition has no segment, and never had a finished one."""
    return not cache.rows and all(
        segments.highest_offset is None or segments.highest_offset < 0
        for segments in cache.epochs.values()
    )


def spans(row: RemoteLogSegmentMetadata) -> Iterator[tuple[int, int, int]]:
    """Iterate over (epoch, first offset, last offset) of the leader epochs in the segment."""
    for at, (epoch, start) in enumerate(row.leader_epochs):
        is_last = at + 1 == len(row.leader_epochs)
        yield epoch, start, row.end_offset if is_last else row.leader_epochs[at + 1][1] - 1
