"""Answers brokers' requests about the tier by the pure planners, with this node's facts."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Identity
from rlm.copy.asked_by_name import log_start_of
from rlm.copy.claim_outlook import ClaimOutlook, NoOutlook, claim_outlook
from rlm.copy.scanner import Breathe, BrokerPort
from rlm.copy.work_table import WorkTable
from rlm.fetch.follower_start import (
    FollowerFetchAnswer,
    FollowerFetchQuery,
    FollowerPlan,
    answer_follower_fetch,
)
from rlm.fetch.leader_transition import (
    LeaderTransitionAnswer,
    LeaderTransitionQuery,
    answer_leader_transition,
)
from rlm.fetch.list_offsets import (
    NO_TIMESTAMP,
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    LocalOffsets,
    OffsetAnswer,
    OffsetSpec,
    answer_special,
    parse_spec,
)
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.fetch.timestamp_search import TimestampSearch
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer
from rlmm.manager.manager import RemoteLogMetadataManager

OF_THE_TIER = frozenset(
    {OffsetSpec.EARLIEST, OffsetSpec.LATEST_TIERED, OffsetSpec.EARLIEST_PENDING_UPLOAD}
)
"""The special timestamps that are answered differently if nothing is tiered."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Read-only. Each answer is valid at the applied offset that it names. "Nothing is tiered" is
    answered only for a partition that is ready on this node (`rlmm/manager/readiness.py`).
    """

    metadata: RemoteLogMetadataManager
    reader: ResolvedReads
    table: WorkTable
    broker: BrokerPort | None
    breathe: Breathe
    identity: Identity
    batch_bytes_max: int
    """The largest batch, decompressed, that a look-up by time decodes."""

    def claim_outlook(self, partition: TopicIdPartition) -> ClaimOutlook | NoOutlook:
        """The effect of this node's next claim; does not await, like `leader_transition`."""
        return claim_outlook(
            partition,
            self.table.work(partition),
            self.metadata,
            self.identity.incarnation,
        )

    def leader_transition(self, query: LeaderTransitionQuery) -> LeaderTransitionAnswer:
        """The answer for a new leader: one read of the view without an await, so at one offset."""
        partition = query.partition
        return answer_leader_transition(
            query,
            self.metadata.partition_state(partition),
            self.metadata.forecast_claim(query.as_claim()),
            self.metadata.left_overs(partition),
            self.metadata.applied_offset,
        )

    async def follower_fetch(self, query: FollowerFetchQuery) -> FollowerFetchAnswer:
        """The plan for a follower; asks the broker for a local log start that is not given."""
        partition = query.partition
        local_start = query.leader_local_log_start_offset
        if local_start is None:
            local_start = await self._ask_local_log_start(query)
        state = self.metadata.partition_state(partition)
        if state is None:
            self._check_ready(partition)
        answer = answer_follower_fetch(
            query,
            local_start,
            state,
            lambda epoch, offset: self.metadata.remote_log_segment_metadata(
                partition, epoch, offset
            ),
            self.metadata.applied_offset,
        )
        if answer.plan is FollowerPlan.TRUNCATE_FULLY:
            self._check_ready(partition)
        return answer

    def _check_ready(self, partition: TopicIdPartition) -> None:
        """Raise RetryLater unless the partition is ready: a lagging view answers that nothing is
        tiered, and a leader would act on that.
        """
        if not self.metadata.is_ready(partition):
            raise RetryLater(
                f"{partition} is not ready on this node: ask again, its metadata may lag"
            )

    async def _ask_local_log_start(self, query: FollowerFetchQuery) -> int:
        field = "leader_local_log_start_offset"
        work = self.table.work(query.partition)
        if work is None or work.local is None:
            raise InvalidRequest(
                "is needed: this node has no replica of the partition; ask the node beside its "
                "leader, or name the offset",
                field=field,
            )
        if self.broker is None:
            return work.local.local_log_start_offset
        answer = await log_start_of(self.broker, work.local)
        if isinstance(answer, LocalLogStart):
            return answer.offset
        if isinstance(answer, NoAnswer):
            raise RetryLater(f"the leader's local log start is not known: {answer.reason}")
        raise InvalidRequest(
            "is needed: this node's broker does not lead the partition; ask the node beside its "
            "leader, or name the offset",
            field=field,
        )

    async def offsets(self, partition: TopicIdPartition, timestamp: int) -> OffsetAnswer:
        """The answer for a special timestamp by the planner, for a time by a search in the tier."""
        spec = parse_spec(timestamp)
        applied = self.metadata.applied_offset
        if spec is not None and spec is not OffsetSpec.MAX_TIMESTAMP:
            state = self.metadata.partition_state(partition)
            if spec in OF_THE_TIER and (state is None or state.highest_copied is None):
                self._check_ready(partition)
            return answer_special(spec, partition, state, self._local(partition), applied)
        if self.metadata.partition_state(partition) is None:
            self._check_ready(partition)
        self.reader.state_of(partition)
        search = TimestampSearch(self.reader, partition, self.breathe, self.batch_bytes_max)
        if spec is OffsetSpec.MAX_TIMESTAMP:
            found = await search.with_max_timestamp()
        else:
            found = await search.first_at_or_after(timestamp)
        if found is None:
            self._check_ready(partition)
            return OffsetAnswer(partition, NO_TIMESTAMP, UNKNOWN_OFFSET, UNKNOWN_EPOCH, applied)
        return OffsetAnswer(
            partition, found.timestamp_ms, found.offset, found.leader_epoch, applied
        )

    def _local(self, partition: TopicIdPartition) -> LocalOffsets | None:
        work = self.table.work(partition)
        if work is None or work.local is None:
            return None
        if not isinstance(work.word, Leads):
            return None
        return LocalOffsets(
            local_log_start_offset=work.local.local_log_start_offset,
            latest=work.word.last_stable_offset,
            checkpoint=work.local.leader_epochs,
        )
