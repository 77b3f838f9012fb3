"""An invariant of segments that a later leader's log lacks.

what_was_cut_off_stays  with a trash it is deleted only when it has been outside the lineage for the
                        time of the trash, or when its retention is over, or below the log start
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import UNLIMITED, Mode, PartitionState
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.rows.coverage import epoch_ranges, ranges_in_lineage
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState

if TYPE_CHECKING:
    from sim.tier.world import World

SLACK_MS = 50


class CutOffAudit:
    """Remembers when each segment left the lineage, by the records."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since_ms: dict[Uuid, int] = {}
        self.stayed = 0

    def committed(self, record: MetadataRecord, before: RemoteLogSegmentMetadata | None) -> None:
        """Check an accepted record of a world with a trash; `before` is the row that it updates."""
        if isinstance(record, PartitionClaim):
            self._claimed(record.partition)
        elif (
            isinstance(record, RemoteLogSegmentMetadataUpdate)
            and record.state is SegmentState.DELETE_SEGMENT_STARTED
            and before is not None
        ):
            since_ms = self._since_ms.pop(record.segment_id.id, None)
            state = self._state(record.segment_id.partition)
            if since_ms is not None and state is not None:
                self._deleted(before, state, since_ms)

    def _state(self, tip: TopicIdPartition) -> PartitionState | None:
        return queries.partition_state(self._world.auditor.reference.rows, tip)

    def _claimed(self, tip: TopicIdPartition) -> None:
        state = self._state(tip)
        assert state is not None
        for row in queries.list_segments(self._world.auditor.reference.rows, tip):
            if row.state is not SegmentState.COPY_SEGMENT_FINISHED:
                continue
            served = any(
                end >= state.log_start_offset
                for _, end in ranges_in_lineage(state.lineage, epoch_ranges(row))
            )
            if served:
                self._since_ms.pop(row.segment_id.id, None)
            else:
                self._since_ms.setdefault(row.segment_id.id, self._world.schedule.now_ms)

    def _deleted(self, row: RemoteLogSegmentMetadata, state: PartitionState, since_ms: int) -> None:
        if state.mode is not Mode.SIDECAR or state.delete_state is not None:
            return
        world, limits = self._world, self._world.limits
        if row.end_offset < state.log_start_offset:
            return
        tip = row.segment_id.partition
        policy = queries.topic_policy(world.auditor.reference.rows, tip.topic, tip.topic_id)
        newest_ms = row.max_timestamp_ms if row.max_timestamp_ms >= 0 else row.event_timestamp_ms
        slack_ms = round(2 * limits.clock_difference_max_s * 1000)
        over_ms = newest_ms + policy.retention_ms - slack_ms
        if policy.retention_ms != UNLIMITED and over_ms <= world.now_ms():
            return
        stayed_ms = world.schedule.now_ms - since_ms
        world.auditor.check(
            stayed_ms + SLACK_MS >= round(limits.retention_trash_s * 1000),
            "what_was_cut_off_stays",
            f"{row} is deleted {stayed_ms} ms after it left the lineage {state.lineage}",
        )
        self.stayed += 1
