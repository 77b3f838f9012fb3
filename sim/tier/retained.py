"""Retention seen from outside: it takes from readers only what the standing policy lets go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import UNLIMITED, Mode, PartitionState, TopicPolicy
from rlmm.records.control_records import ExpiryMark, LogStart
from rlmm.rows import queries
from rlmm.segment import SegmentState
from sim.tier.replica import Batch, batches_within

if TYPE_CHECKING:
    from sim.tier.world import World

COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED


class RetentionAudit:
    """Checks accepted log starts and expiry marks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def log_start(self, record: LogStart, before: PartitionState | None) -> None:
        """Check that a log start beyond the first takes only what retention allows. What was lost
        `before` is not in the tier.
        """
        state = queries.partition_state(self._world.auditor.reference.rows, record.partition)
        assert state is not None
        if before is None or before.log_start_offset < 0:
            self._world.hold_audit.first_log_start(record, state)
            return
        if self._world.trash.is_on:
            self._world.trash.audit.log_start(record, before.log_start_offset)
            return
        if state.highest_copied is not None:
            self._allowed(record, before, state, before.log_start_offset)

    def marked(self, record: ExpiryMark, before: PartitionState | None) -> None:
        """Check that a mark takes from readers only what retention allows."""
        state = queries.partition_state(self._world.auditor.reference.rows, record.partition)
        assert before is not None
        assert state is not None
        self._world.trash.marked(record)
        self._allowed(record, before, state, before.first_readable_offset)

    def _allowed(
        self,
        record: LogStart | ExpiryMark,
        before: PartitionState,
        state: PartitionState,
        start: int,
    ) -> None:
        """Check what a log start or a mark takes from `start` on."""
        lost = before.lost_ranges
        truth = self._world.auditor.truth(record.partition)
        told = self._world.auditor.told(record.partition)
        below = batches_within(told, start, record.offset)
        below = [b for b in below if not any(r.start <= b.base <= r.end for r in lost)]
        tip = record.partition
        if state.mode is Mode.DELEGATED and isinstance(record, LogStart):
            # A cut head may have claims tell of records that the leader's log never had.
            below = [each for each in below if each in truth]
            self._world.delegated.audit.log_start_recorded(record, below)
            return
        policy = queries.topic_policy(self._world.auditor.reference.rows, tip.topic, tip.topic_id)
        inside = any(each.base < record.offset <= each.last for each in truth)
        may_follow = policy.follow_delete_records and inside
        if isinstance(record, ExpiryMark):
            what = "the_policy_that_stands_decides"
            holds = not policy.delete_paused and self._takes(policy, tip, state, below)
        elif not may_follow and self._takes(policy, tip, state, below):
            what, holds = "the_policy_that_stands_decides", not policy.delete_paused
        else:
            what = "following_takes_what_delete_records_took"
            holds = self._world.following.took(record, policy, truth, start)
        self._world.auditor.check(holds, what, f"{record} takes what {policy} keeps: {below}")

    def _takes(
        self,
        policy: TopicPolicy,
        partition: TopicIdPartition,
        state: PartitionState,
        below: list[Batch],
    ) -> bool:
        """True if a policy lets all of `below` go: by time, or by size with enough bytes
        behind it.
        """
        slack_ms = round(2 * self._world.limits.clock_difference_max_s * 1000)
        past_ms = self._world.now_ms() + slack_ms - policy.retention_ms
        timed = policy.retention_ms != UNLIMITED
        fresh = [each for each in below if not timed or each.timestamp_ms >= past_ms]
        if not fresh or policy.retention_bytes == UNLIMITED:
            return not fresh
        assert state.highest_copied is not None
        behind = fresh[-1].last + 1
        # Segments count as a whole, also with a head that DeleteRecords took.
        holding = (
            row.start_offset
            for row in queries.list_segments(self._world.auditor.reference.rows, partition)
            if row.state is COPY_FINISHED and row.start_offset <= behind <= row.end_offset
        )
        first = min(holding, default=behind)
        told = self._world.auditor.told(partition)
        end = state.highest_copied[0] + 1
        # A claim tells of no batch whose head DeleteRecords took; segments have all of it.
        deleted = [at for _, at in self._world.brokers.partition(partition).deletions]
        kept = {
            *batches_within(told, first, end),
            *(
                each
                for each in batches_within(self._world.auditor.truth(partition), first, end)
                if any(each.base < at <= each.last for at in deleted)
            ),
        }
        return sum(len(batch.data) for batch in kept) >= policy.retention_bytes
