"""Keeps segments that were tiered before brokers tiered the topic from a leader whose log lacks
them [LOSS-8].

Before that, each replica had a retention of its own, so a later leader's log may begin above
offsets that an earlier leader had tiered. Its remote log manager takes these for deleted. They are
deleted only once the log start passes them while this leader leads: by retention, or by
DeleteRecords.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.errors import RetryLater
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import LogStartRecorded, OnEvent
from rlm.control.surroundings import Surroundings
from rlm.copy.asked_by_name import tiered_log_start_of
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.delegated.diverged_tail import last_valid_offset
from rlm.leadership.leadership import NoAnswer, NotLeading
from rlm.leadership.unseen_disk import EpochAt
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import LogStart
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)


def is_kept(row: RemoteLogSegmentMetadata, state: PartitionState) -> bool:
    """True for a finished segment that may be from before the present mode, is not below the
    recorded log start, and is not cut off by a later leader's history.
    """
    valid = last_valid_offset(row, state.lineage)
    is_cut_off = valid is not None and valid < row.start_offset
    passed = row.end_offset < state.log_start_offset
    return _may_be_older(row, state) and not passed and not is_cut_off


def _may_be_older(row: RemoteLogSegmentMetadata, state: PartitionState) -> bool:
    """True for a segment added before the present mode, and for one without an upload deadline: it
    was adopted from the store after a restart from a snapshot, and the mode in which it was copied
    is unknown.
    """
    return row.token < state.mode_offset or row.upload_deadline_ms < 0


@dataclass(frozen=True, slots=True)
class OlderHistory:
    """The older history of a node's partitions. `work` is the partition on this node."""

    metadata: RemoteLogMetadataManager
    broker: BrokerPort | None
    work: Callable[[TopicIdPartition], PartitionWork | None]
    on_event: OnEvent
    around: Surroundings

    async def before_list(self, tip: TopicIdPartition) -> None:
        """Note where a new leader's log starts, before the leader moves it because of the list."""
        state, work = self.metadata.partition_state(tip), self.work(tip)
        oldest = next(self.metadata.list_remote_log_segments(tip), None)
        if state is None or state.claim is None or work is None or oldest is None:
            return
        token = state.claim.token
        may_be_older = _may_be_older(oldest, state) or self.metadata.restart() is not None
        # The start noted for an earlier claim stays in use until a new one is noted.
        if (may_be_older or work.led_from is not None) and _noted(work, token) is None:
            start = await self._log_start(work)
            if isinstance(start, EpochAt):
                self._note(work, token, start.offset)

    def led_from(self, tip: TopicIdPartition) -> int:
        """The log start of this node's broker when it began to lead; until that is known, the one
        of its earlier leadership; 0: unknown. Segments below it are listed with no bytes.
        """
        work = self.work(tip)
        return 0 if work is None or work.led_from is None else work.led_from[1]

    async def log_start(self, tip: TopicIdPartition) -> EpochAt:
        """The present log start of this node's broker, which may lie in the tier, and the leader
        epoch there. RetryLater: the broker does not answer, or no longer leads.
        """
        work = self.work(tip)
        start = NoAnswer("it has no replica here") if work is None else await self._log_start(work)
        if not isinstance(start, EpochAt):
            why = start.reason if isinstance(start, NoAnswer) else "it does not lead"
            raise RetryLater(f"the broker's log start of {tip} is not known: {why}")
        return start

    async def check(self, row: RemoteLogSegmentMetadata, token: int) -> None:
        """Raise RetryLater unless the log start passed the segment while the broker led under the
        claim `token`; then record the tier's log start. If the start at the claim is not noted yet,
        the present one is: whatever the log start passed earlier is unknown.
        """
        tip = row.segment_id.partition
        start = await self.log_start(tip)
        work, state = self.work(tip), self.metadata.partition_state(tip)
        if work is None or state is None:
            raise RetryLater(f"{row.segment_id}: its partition is not on this node any more")
        began = self._note(work, token, start.offset)
        if not max(began, row.end_offset) < start.offset:
            text = (
                f"{row.segment_id} ({row.start_offset} to {row.end_offset}) stays: it was tiered "
                f"before the brokers tiered the topic, and this broker's log began at {began}, "
                f"above it, when it became leader. The log start ({start.offset} now) has to move "
                "while it leads, by retention or DeleteRecords, for such segments to go"
            )
            if work.last_error is None or work.last_error.text != text:
                logger.warning("%s", text)
            work.failed(RetryLater.kind, text, self.around.ambient.now_ms())
            raise RetryLater(text)
        epoch = epoch_for_offset(state.lineage, start.offset)
        first = state.lineage[0].epoch
        record = LogStart(tip, token, first if epoch is None else epoch, start.offset)
        deadline_s = self.around.limits.propose_deadline_s
        await self.metadata.record_log_start(record, deadline_s=deadline_s)
        self.on_event(LogStartRecorded(tip, start.offset))

    def _note(self, work: PartitionWork, token: int, start: int) -> int:
        """The log start at the claim: the first one noted, or the one that the broker takes from
        the first segment of its first epoch (findLogStartOffset), if that is higher.
        """
        noted = _noted(work, token)
        if noted is None:
            noted = max(start, self._first_listed(work))
            work.led_from = token, noted
        return noted

    def _first_listed(self, work: PartitionWork) -> int:
        for entry in () if work.local is None else work.local.leader_epochs:
            for row in self.metadata.list_remote_log_segments(work.partition, entry.epoch):
                if row.state is SegmentState.COPY_SEGMENT_FINISHED:  # others may be gone by then
                    return row.start_offset
        return work.broker_log_start

    async def _log_start(self, work: PartitionWork) -> EpochAt | NotLeading | NoAnswer:
        if self.broker is None or work.local is None:
            return NoAnswer("this node has no broker to ask")
        return await tiered_log_start_of(self.broker, work.local)


def _noted(work: PartitionWork, token: int) -> int | None:
    return work.led_from[1] if work.led_from is not None and work.led_from[0] == token else None
