"""Invariants of a restart from an older snapshot: what is whole in the store is not lost, what is
gone from it is not served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.restart import MISSING
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import LogStart, Reconciled, SegmentMissing
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.rows.reads import read_restart, read_segment
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from sim.tier.replica import Batch, batches_within

if TYPE_CHECKING:
    from sim.tier.world import World

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Whole:
    """A segment that was finished and served `batches` when the disaster came."""

    row: RemoteLogSegmentMetadata
    batches: tuple[Batch, ...]


class DisasterAudit:
    """`whole` are the finished segments of the lost metadata whose objects are there; `unknown` the
    ids of which only lost records told.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.whole: dict[TopicIdPartition, list[Whole]] = {}
        self.unknown: set[Uuid] = set()
        self._log_starts: dict[TopicIdPartition, int] = {}
        self._end = -1

    def strike(self, end: int) -> None:
        """Remember what the lost metadata served; `end` is that of the snapshot."""
        world, self._end = self._world, end
        rows = world.auditor.reference.rows
        for tip in queries.partitions(rows):
            state = queries.partition_state(rows, tip)
            assert state is not None
            self._log_starts[tip] = state.log_start_offset
            if state.delete_state is not None:
                continue
            for row in queries.list_segments(rows, tip):
                served = tuple(self._served(state, row))
                if row.state is FINISHED and served and self._is_there(row):
                    self.whole.setdefault(tip, []).append(Whole(row, served))

    def restarted(self) -> None:
        """Note the segments of which the snapshot does not tell."""
        auditor = self._world.auditor
        rows = auditor.reference.rows
        self.unknown = {each for each in auditor.ids if read_segment(rows, each) is None}
        for tip in queries.partitions(rows):
            state = queries.partition_state(rows, tip)
            assert state is not None
            marked = state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED
            auditor.check(
                state.claim is None and not marked and not state.expiry.marks,
                "claims_and_marks_are_void",
                f"the snapshot begins with {state}",
            )

    def _served(self, state: PartitionState, row: RemoteLogSegmentMetadata) -> Iterator[Batch]:
        truth = self._world.auditor.truth(state.partition)
        for batch in batches_within(truth, row.start_offset, row.end_offset + 1):
            if batch.last >= max(state.log_start_offset, 0) and _is_of(row, batch):
                yield batch

    def _is_there(self, row: RemoteLogSegmentMetadata) -> bool:
        keys = self._world.auditor.keys(row)
        return all(self._world.bucket.content(key) is not None for key in keys)

    # ---- records since

    def committed(
        self, record: MetadataRecord, tip: TopicIdPartition | None, before: PartitionState | None
    ) -> None:
        """Check an accepted record of the new cluster."""
        rows = self._world.auditor.reference.rows
        if isinstance(record, SegmentMissing):
            row = read_segment(rows, record.segment)
            assert row is not None
            self._world.auditor.check(
                not self._is_there(row), "missing_is_missing", f"{record}, it is whole: {row}"
            )
        elif isinstance(record, Reconciled):
            self._all_there()
        elif isinstance(record, RemoteLogSegmentMetadata):
            self.unknown.discard(record.segment_id.id)
        elif isinstance(record, RemoteLogSegmentMetadataUpdate) and record.state is not FINISHED:
            alive = before is not None and before.delete_state is None
            early = not self.is_reconciled() or (alive and before is not None and before.adopting)
            self._world.auditor.check(not early, "nothing_goes_before_the_comparison", f"{record}")
        if tip is None:
            return
        state = queries.partition_state(rows, tip)
        if state is None:
            return
        start = -1 if before is None else before.log_start_offset
        if state.log_start_offset <= start:
            return
        if isinstance(record, LogStart) and start >= 0:
            return  # retention, which has an auditor of its own
        self._passed(record, tip, max(start, self._log_starts.get(tip, -1)), state)

    def _passed(
        self, record: MetadataRecord, tip: TopicIdPartition, start: int, state: PartitionState
    ) -> None:
        """Check that a log start passes nothing that is whole."""
        for whole in self.whole.get(tip, ()):
            passed = [
                each
                for each in whole.batches
                if start <= each.base
                and each.last < state.log_start_offset
                and each in self._world.auditor.truth(tip)
            ]
            self._world.auditor.check(
                not passed or not self._is_there(whole.row),
                "whole_is_not_passed",
                f"{record} moves the log start to {state.log_start_offset}, {whole.row} is whole",
            )

    def _all_there(self) -> None:
        rows = self._world.auditor.reference.rows
        for tip in queries.partitions(rows):
            for row in queries.list_segments(rows, tip):
                is_old = row.state is FINISHED and row.finished_at < self._end
                there = not is_old or self._is_there(row)
                self._world.auditor.check(
                    there, "what_is_gone_is_not_served", f"{row} is reconciled, and not there"
                )

    def is_reconciled(self) -> bool:
        restart = read_restart(self._world.auditor.reference.rows)
        return restart is None or restart.is_reconciled

    # ---- when all is quiet

    def is_kept(self, row: RemoteLogSegmentMetadata) -> bool:
        """True for an unfinished copy that the snapshot tells of, of offsets recorded as lost: it
        may have finished since, and its log, if the store has it, be the last one. It stays.
        """
        rows = self._world.auditor.reference.rows
        restart, state = read_restart(rows), queries.partition_state(rows, row.segment_id.partition)
        if restart is None or state is None or row.state is not STARTED:
            return False
        lost = state.lost_ranges
        is_lost = any(x.start <= row.end_offset and row.start_offset <= x.end for x in lost)
        return row.token < restart.offset and is_lost

    def left_to_do(self) -> Iterator[str]:
        """A comparison that is not recorded, and segments that are whole and not served."""
        if not self.is_reconciled():
            yield "the operator has not recorded what is missing"
        rows = self._world.auditor.reference.rows
        for partition in self._world.brokers.partitions:
            tip = partition.tip
            state = queries.partition_state(rows, tip)
            if state is None:
                continue
            if state.adopting:
                yield f"{tip} is not adopted"
            lost = state.lost_ranges[:1]
            if lost and lost[0].start <= state.log_start_offset and lost[0].why == MISSING:
                yield f"the log start of {tip} stays below {lost[0]}"
            now = [row for row in queries.list_segments(rows, tip) if row.state is FINISHED]
            truth = self._world.auditor.truth(tip)
            for whole in self.whole.get(tip, ()):
                left = [
                    each
                    for each in whole.batches
                    if each.last >= state.log_start_offset
                    and each in truth
                    and not any(_has(row, each) for row in now)
                ]
                if left and self._is_there(whole.row):
                    yield f"{left[0].base} of {tip} is whole in {whole.row}, and nothing serves it"


def _has(row: RemoteLogSegmentMetadata, batch: Batch) -> bool:
    inside = row.start_offset <= batch.base and batch.last <= row.end_offset
    return inside and _is_of(row, batch)


def _is_of(row: RemoteLogSegmentMetadata, batch: Batch) -> bool:
    """True if a segment has the offsets of a batch in the batch's epoch."""
    epochs = [epoch for epoch, start in row.leader_epochs if start <= batch.base]
    return bool(epochs) and epochs[-1] == batch.epoch
