"""Invariants of scenes, and of all that happens beside them, seen from outside.

nothing_under_way_is_passed   retention passes no copy that has been under way for a while
what_the_tier_proves_stays    segments of a leader's own log stay in the lineage when it comes back
a_copy_ends_under_its_claim   brokers end no copy that was begun under an earlier claim
older_history_stays           what was tiered before brokers did goes only once the log start of its
                              leader has moved while it led
copied_is_on_no_disk_alone    all on a leader's disk up to what it takes for copied is in the tier
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.copy_job import CopyJob
from rlm.delegated.older_history import is_kept
from rlmm.metadata_log import Proposal
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import LogStart, PartitionClaim
from rlmm.records.records import MetadataRecord, decode
from rlmm.rows import queries
from rlmm.rows.coverage import epoch_ranges, ranges_in_lineage
from rlmm.rows.reads import read_segment
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

if TYPE_CHECKING:
    from sim.tier.machine import Machine, Process
    from sim.tier.partition import Partition
    from sim.tier.replica import Replica
    from sim.tier.world import World

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
KNOWN_AFTER_S = 4
"""Seconds of a copy, in the life of its node, after which each plan of retention knows it."""


class ScenesAudit:
    """Checks what scenes lead to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: dict[tuple[int, TopicIdPartition], RemoteLogSegmentMetadata] = {}
        self._back: dict[TopicIdPartition, tuple[int, int]] = {}
        self._began: dict[TopicIdPartition, tuple[int, int]] = {}

    def _check(self, holds: bool, name: str, message: str) -> None:
        self._world.auditor.check(holds, name, message)

    # ---- lost ranges that are filled

    def under_way(self, machine: Machine, job: CopyJob, seconds: int) -> None:
        """Note a copy that takes long."""
        row = read_segment(self._world.auditor.reference.rows, job.segment_id.id)
        if row is not None and seconds >= KNOWN_AFTER_S:
            self._under_way[machine.node_id, job.segment_id.partition] = row

    def uploaded(self, machine: Machine, job: CopyJob) -> None:
        """Note the end of a copy."""
        self._under_way.pop((machine.node_id, job.segment_id.partition), None)

    def proposing(self, process: Process, proposals: tuple[Proposal, ...]) -> None:
        """Check a log start of retention."""
        if not self._under_way or self._world.trash.is_on:
            return
        record = decode(proposals[0].control_type, proposals[0].value)
        if not isinstance(record, LogStart) or record.policy_offset is None:
            return
        row = self._under_way.get((process.machine.node_id, record.partition))
        self._check(
            row is None or row.token != record.token or record.offset <= row.start_offset,
            "nothing_under_way_is_passed",
            f"{record} is proposed, and {row} has been under way for {KNOWN_AFTER_S} s",
        )

    # ---- records

    def comes_back(self, partition: Partition, own: int) -> None:
        """Note a leader whose log has an epoch that begins below its disk."""
        self._back[partition.tip] = partition.epoch, own

    def elected(self, partition: Partition) -> None:
        """Note where the log of a leader of a partition that brokers tier begins."""
        assert partition.leading is not None
        self._began[partition.tip] = partition.epoch, partition.leading.log_start

    def committed(
        self,
        record: MetadataRecord,
        before: RemoteLogSegmentMetadata | None,
        state_before: PartitionState | None,
    ) -> None:
        """Check an accepted record; `before`, `state_before`: its segment and partition until
        then.
        """
        match record:
            case PartitionClaim():
                self._claimed(record)
            case RemoteLogSegmentMetadataUpdate() if before is not None:
                if state_before is not None and state_before.mode is Mode.DELEGATED:
                    self._updated(record, before, state_before)
            case _:
                pass

    def _claimed(self, claim: PartitionClaim) -> None:
        """Check the first claim of a leader that came back."""
        epoch, own = self._back.get(claim.partition, (-1, -1))
        if claim.leader_epoch < epoch:
            return
        self._back.pop(claim.partition, None)
        if claim.leader_epoch != epoch or claim.leader_epochs[0].epoch > own:
            return
        rows = self._world.auditor.reference.rows
        state = queries.partition_state(rows, claim.partition)
        assert state is not None
        log = {
            each.base: each for each in self._world.brokers.partition(claim.partition).truth[epoch]
        }
        for row in queries.list_segments(rows, claim.partition):
            first = log.get(row.start_offset)
            if row.state is not FINISHED or row.leader_epochs != ((own, row.start_offset),):
                continue
            if row.start_offset < state.log_start_offset:
                continue
            inside = ranges_in_lineage(state.lineage, epoch_ranges(row))
            self._check(
                first is None
                or first.epoch != own
                or sum(end + 1 - start for start, end in inside)
                == row.end_offset + 1 - row.start_offset,
                "what_the_tier_proves_stays",
                f"{claim} leads to {state.lineage}, and {row} is of its leader's log",
            )

    def _updated(
        self,
        update: RemoteLogSegmentMetadataUpdate,
        row: RemoteLogSegmentMetadata,
        state: PartitionState,
    ) -> None:
        if update.state is FINISHED:
            self._check(
                update.token == row.token,
                "a_copy_ends_under_its_claim",
                f"{row.segment_id} was begun under {row.token}, and ends under {update.token}",
            )
        deletes = update.state is SegmentState.DELETE_SEGMENT_STARTED and row.state is FINISHED
        if not deletes or not is_kept(row, state) or state.delete_state is not None:
            return
        tip, claim = row.segment_id.partition, state.claim
        epoch, began = self._began.get(tip, (-1, -1))
        if claim is None or epoch != claim.leader_epoch:
            return
        replica = self._world.brokers.partition(tip).replicas.get(claim.incarnation.node_id)
        self._check(
            replica is None or replica.log_start > began,
            "older_history_stays",
            f"{row} is deleted, and the log of its leader began at {began} and does so",
        )

    # ---- what brokers are told

    def copied(self, broker: int, tip: TopicIdPartition, replica: Replica, last: int) -> None:
        """Check the highest copied offset that a claimed leader hears."""
        partition = self._world.brokers.partition(tip)
        state = queries.partition_state(self._world.auditor.reference.rows, tip)
        if partition.leading is not replica or state is None or state.claim is None:
            return
        claimed = state.claim.incarnation.node_id, state.claim.leader_epoch
        if claimed != (broker, partition.epoch):
            return
        missing = False
        for batch in reversed([each for each in replica.batches if each.last <= last]):
            if batch.base < max(replica.bases[0], replica.log_start):
                return
            if self._world.delegated.audit.has(partition, batch):
                self._check(
                    not missing,
                    "copied_is_on_no_disk_alone",
                    f"broker {broker} takes {tip} for copied up to {last}, and the tier lacks "
                    f"something behind {batch.last}",
                )
            elif not any(each.start <= batch.base <= each.end for each in state.lost_ranges):
                missing = True
