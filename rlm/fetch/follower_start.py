"""Plans where a follower behind the leader's local log starts, and with which state. Pure.

The plan follows Kafka's TierStateMachine (KIP-405): for an offset below its local log start a
leader answers OFFSET_MOVED_TO_TIERED_STORAGE (109). The follower rebuilds leader epochs and
producer state from the tier, and fetches from the leader after that. No log bytes are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    FETCH_LOCALLY = "fetch_locally"
    BUILD_FROM_TIER = "build_from_tier"
    TRUNCATE_FULLY = "truncate_fully"


@dataclass(frozen=True, slots=True)
class FollowerFetchQuery:
    """A follower's request. `leader_local_log_start_offset` None: ask this node's broker, if it
    leads.

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
    """The follower fetches from the leader at `fetch_offset`, after truncating its whole local log
    unless the plan is FETCH_LOCALLY. `error_code` is a Kafka leader's answer to the Fetch.

    BUILD_FROM_TIER: `leader_epochs` replace the follower's, and `segment`'s producer snapshot is
    restored at `fetch_offset`. `producer_snapshot_exact` is False if the segment's tail above
    `valid_until` diverged: its snapshot may contain producers of records outside the lineage.
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
"""(leader epoch, offset) -> the segment that serves the offset, clamped to the lineage."""


def answer_follower_fetch(
    query: FollowerFetchQuery,
    leader_local_log_start_offset: int,
    state: PartitionState | None,
    segment_for_offset: SegmentForOffset,
    metadata_offset: int,
) -> FollowerFetchAnswer:
    """The plan, valid at `metadata_offset`.

    Fenced / RetryLater for a leader epoch older / newer than that of the last claim (Kafka's
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH). RetryLater while the tier does not reach the
    leader's local log yet. NotFound for a partition that no record names.
    """
    check_query(query, leader_local_log_start_offset)
    if state is None:
        raise NotFound(f"{query.partition} is not in the metadata log: nothing of it was tiered")
    _check_epoch(query, state)
    local_start = leader_local_log_start_offset
    log_start = state.first_readable_offset if state.first_readable_offset >= 0 else local_start
    locally = FollowerFetchAnswer(
        query.partition, FollowerPlan.FETCH_LOCALLY, NONE, query.fetch_offset, log_start,
        local_start, (), None, -1, producer_snapshot_exact=False, metadata_offset=metadata_offset,
    )  # fmt: skip
    if query.fetch_offset >= local_start:
        return locally
    truncated = replace(
        locally,
        plan=FollowerPlan.TRUNCATE_FULLY,
        error_code=OFFSET_OUT_OF_RANGE,
        fetch_offset=local_start,
        log_start_offset=local_start,
        leader_epochs=truncate_from_end(state.lineage, local_start),
    )
    if state.highest_copied is None:
        return truncated
    up_to = _build_up_to(query, state, local_start)
    if up_to < state.first_readable_offset:
        return truncated
    epoch = epoch_for_offset(state.lineage, up_to)
    found = segment_for_offset(epoch, up_to) if epoch is not None else None
    if found is not None:
        return _built_from(found, locally, state)
    if epoch is None or any(lost.start <= up_to <= lost.end for lost in state.lost_ranges):
        # The offset right below the leader's local log can never be served: it is lost, or below
        # the lineage. There is no producer state to restore, and the leader has no records below
        # either.
        return replace(truncated, log_start_offset=log_start)
    raise RetryLater(
        f"offset {up_to} of {query.partition} is below the leader's local log but not tiered yet "
        f"(next offset to copy: {state.next_offset}); ask again"
    )


def check_query(query: FollowerFetchQuery, leader_local_log_start_offset: int) -> None:
    """Raise InvalidRequest with the field's name for negative numbers."""
    for field, value in (
        ("fetch_offset", query.fetch_offset),
        ("leader_epoch", query.leader_epoch),
        ("leader_local_log_start_offset", leader_local_log_start_offset),
    ):
        if value < 0:
            raise InvalidRequest("must be 0 or more", field=field)


def _check_epoch(query: FollowerFetchQuery, state: PartitionState) -> None:
    """Check the leader epoch against the last claim, which bounds the lineage even if voided."""
    claim = state.last_claim
    if claim is None:
        _check_known(query, state)
        return
    if claim.leader_epoch == query.leader_epoch:
        return
    if query.leader_epoch < claim.leader_epoch:
        raise Fenced(
            f"leader epoch {query.leader_epoch} of {query.partition} is over; it is claimed at "
            f"epoch {claim.leader_epoch} (FENCED_LEADER_EPOCH)"
        )
    raise RetryLater(
        f"leader epoch {query.leader_epoch} of {query.partition} is not claimed yet; the last "
        f"claim is at epoch {claim.leader_epoch} (UNKNOWN_LEADER_EPOCH)"
    )


def _check_known(query: FollowerFetchQuery, state: PartitionState) -> None:
    """Check a leader against the lineage where no claim tells: a later one may have cut it, as of a
    rebuilt tier. RetryLater then.
    """
    if state.lineage and query.leader_epoch > state.lineage[-1].epoch:
        raise RetryLater(
            f"leader epoch {query.leader_epoch} of {query.partition} is not claimed yet; its "
            f"lineage ends at epoch {state.lineage[-1].epoch} (UNKNOWN_LEADER_EPOCH)"
        )


def _build_up_to(query: FollowerFetchQuery, state: PartitionState, local_start: int) -> int:
    if query.from_last_tiered and state.highest_copied is not None:
        return max(state.highest_copied[0], local_start - 1)
    return local_start - 1


def _built_from(
    found: SegmentAnswer, locally: FollowerFetchAnswer, state: PartitionState
) -> FollowerFetchAnswer:
    # The segment may reach above the leader's local start; Kafka goes on after it.
    fetch_offset = min(found.metadata.end_offset, found.valid_until) + 1
    below = locally.fetch_offset < state.first_readable_offset
    return replace(
        locally,
        plan=FollowerPlan.BUILD_FROM_TIER,
        error_code=OFFSET_OUT_OF_RANGE if below else OFFSET_MOVED_TO_TIERED_STORAGE,
        fetch_offset=fetch_offset,
        log_start_offset=state.first_readable_offset,
        leader_epochs=truncate_from_end(state.lineage, fetch_offset),
        segment=found.metadata,
        valid_until=found.valid_until,
        producer_snapshot_exact=found.valid_until >= found.metadata.end_offset,
    )
