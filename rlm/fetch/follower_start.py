"""What a follower asks that fell behind the leader's local log: where to start, with what state.

Pure. After Kafka's TierStateMachine (KIP-405): below the leader's local log start offset a leader
answers OFFSET_MOVED_TO_TIERED_STORAGE (109), and the follower rebuilds leader epochs and producer
state from the tier, then fetches on from there. No log bytes are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kafka_formats.errors import Fenced, InvalidRequest, NotFound, RetryLater
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset, truncate_from_end
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import PartitionState
from rlmm.rows.queries import SegmentAnswer
from rlmm.segment import RemoteLogSegmentMetadata

NONE = 0
OFFSET_OUT_OF_RANGE = 1
OFFSET_MOVED_TO_TIERED_STORAGE = 109


class FollowerPlan(StrEnum):
    """What the follower has to do."""

    FETCH_LOCALLY = "fetch_locally"
    BUILD_FROM_TIER = "build_from_tier"
    TRUNCATE_FULLY = "truncate_fully"


@dataclass(frozen=True, slots=True)
class FollowerFetchQuery:
    """`leader_local_log_start_offset` None: ask the node's own broker, if that leads.

    `from_last_tiered` (KIP-1023, for an empty follower) starts after the highest copied offset
    instead of at the leader's local log start, so that only the uncopied tail is fetched.
    """

    partition: TopicIdPartition
    fetch_offset: int
    leader_epoch: int
    leader_local_log_start_offset: int | None = None
    from_last_tiered: bool = False


@dataclass(frozen=True, slots=True)
class FollowerFetchAnswer:
    """`fetch_offset` is where to go on fetching from the leader, after truncating the whole local
    log unless the plan is FETCH_LOCALLY. `error_code` is what a Kafka leader answers to the FETCH.

    BUILD_FROM_TIER: `leader_epochs` replace the follower's, `segment`'s producer snapshot is
    restored at `fetch_offset`; `producer_snapshot_exact` is False when the segment's tail above
    `valid_until` diverged, so that its snapshot may know producers of records nobody reads.
    """

    partition: TopicIdPartition
    plan: FollowerPlan
    error_code: int
    fetch_offset: int
    log_start_offset: int
    leader_local_log_start_offset: int
    leader_epochs: Epochs
    segment: RemoteLogSegmentMetadata | None
    valid_until: int
    producer_snapshot_exact: bool
    metadata_offset: int


SegmentForOffset = Callable[[int, int], SegmentAnswer | None]
"""(leader epoch, offset) -> the segment that serves it, clamped to the lineage."""


def answer_follower_fetch(
    query: FollowerFetchQuery,
    leader_local_log_start_offset: int,
    state: PartitionState | None,
    segment_for_offset: SegmentForOffset,
    metadata_offset: int,
) -> FollowerFetchAnswer:
    """The plan, true at `metadata_offset`.

    Fenced / RetryLater for an older / newer leader epoch than the claimed one (Kafka's
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH); RetryLater while the tier does not reach up to the
    leader's local log yet; NotFound for a partition the metadata log never heard of.
    """
    check_query(query, leader_local_log_start_offset)
    if state is None:
        raise NotFound(f"{query.partition} is not in the metadata log: nothing of it was tiered")
    _check_epoch(query, state)
    local_start = leader_local_log_start_offset
    answer = _Answer(query, state, local_start, metadata_offset)
    if query.fetch_offset >= local_start:
        return answer.fetch_locally()
    if state.highest_copied is None:
        return answer.truncate_fully(log_start_offset=local_start)
    up_to = _build_up_to(query, state, local_start)
    if up_to < state.log_start_offset:
        return answer.truncate_fully(log_start_offset=local_start)
    epoch = epoch_for_offset(state.lineage, up_to)
    found = segment_for_offset(epoch, up_to) if epoch is not None else None
    if found is not None:
        return answer.build_from(found)
    if epoch is None or any(lost.start <= up_to <= lost.end for lost in state.lost_ranges):
        # Nothing will ever serve the offset right below the leader's local log: it is lost, or
        # below everything that the lineage knows. There is no producer state to restore, and the
        # leader has nothing below its local start either.
        log_start = state.log_start_offset if state.log_start_offset >= 0 else local_start
        return answer.truncate_fully(log_start_offset=log_start)
    raise RetryLater(
        f"offset {up_to} of {query.partition} is below the leader's local log but not tiered yet "
        f"(next offset to copy: {state.next_offset}); ask again"
    )


def check_query(query: FollowerFetchQuery, leader_local_log_start_offset: int) -> None:
    """InvalidRequest with the field's name for negative numbers."""
    for field, value in (
        ("fetch_offset", query.fetch_offset),
        ("leader_epoch", query.leader_epoch),
        ("leader_local_log_start_offset", leader_local_log_start_offset),
    ):
        if value < 0:
            raise InvalidRequest("must be 0 or more", field=field)


def _check_epoch(query: FollowerFetchQuery, state: PartitionState) -> None:
    claim = state.claim
    if claim is None or claim.leader_epoch == query.leader_epoch:
        return
    if query.leader_epoch < claim.leader_epoch:
        raise Fenced(
            f"leader epoch {query.leader_epoch} of {query.partition} is over; it is claimed at "
            f"epoch {claim.leader_epoch} (FENCED_LEADER_EPOCH)"
        )
    raise RetryLater(
        f"leader epoch {query.leader_epoch} of {query.partition} is not claimed yet; the claim "
        f"stands at epoch {claim.leader_epoch} (UNKNOWN_LEADER_EPOCH)"
    )


def _build_up_to(query: FollowerFetchQuery, state: PartitionState, local_start: int) -> int:
    if query.from_last_tiered and state.highest_copied is not None:
        return max(state.highest_copied[0], local_start - 1)
    return local_start - 1


@dataclass(frozen=True, slots=True)
class _Answer:
    query: FollowerFetchQuery
    state: PartitionState
    local_start: int
    metadata_offset: int

    def fetch_locally(self) -> FollowerFetchAnswer:
        log_start = self.state.log_start_offset
        return self._make(
            FollowerPlan.FETCH_LOCALLY,
            NONE,
            self.query.fetch_offset,
            log_start if log_start >= 0 else self.local_start,
            (),
            None,
        )

    def truncate_fully(self, *, log_start_offset: int) -> FollowerFetchAnswer:
        return self._make(
            FollowerPlan.TRUNCATE_FULLY,
            OFFSET_OUT_OF_RANGE,
            self.local_start,
            log_start_offset,
            truncate_from_end(self.state.lineage, self.local_start),
            None,
        )

    def build_from(self, found: SegmentAnswer) -> FollowerFetchAnswer:
        below = self.query.fetch_offset < self.state.log_start_offset
        # The segment may reach above the leader's local start; Kafka goes on after it.
        fetch_offset = min(found.metadata.end_offset, found.valid_until) + 1
        return self._make(
            FollowerPlan.BUILD_FROM_TIER,
            OFFSET_OUT_OF_RANGE if below else OFFSET_MOVED_TO_TIERED_STORAGE,
            fetch_offset,
            self.state.log_start_offset,
            truncate_from_end(self.state.lineage, fetch_offset),
            found,
        )

    def _make(
        self,
        plan: FollowerPlan,
        error_code: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_epochs: Epochs,
        found: SegmentAnswer | None,
    ) -> FollowerFetchAnswer:
        return FollowerFetchAnswer(
            partition=self.query.partition,
            plan=plan,
            error_code=error_code,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_local_log_start_offset=self.local_start,
            leader_epochs=leader_epochs,
            segment=found.metadata if found is not None else None,
            valid_until=found.valid_until if found is not None else -1,
            producer_snapshot_exact=(
                found is not None and found.valid_until >= found.metadata.end_offset
            ),
            metadata_offset=self.metadata_offset,
        )
