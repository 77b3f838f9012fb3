"""Partition status, and the three questions of design 6.6: offsets, new leader, follower."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from api.http.api_limits import CHECKPOINT_ENTRIES_MAX
from api.http.validation import INT32_MAX, INT64_MAX
from api.models.base import (
    ClaimView,
    EpochOrNull,
    EpochStart,
    LostRangeView,
    MetadataOffset,
    Offset,
    OffsetOrNull,
    PartitionName,
    Wire,
    known,
)
from api.models.scrub import ScrubSummary
from api.models.segments import SegmentView
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.lag import Lag
from rlm.copy.partition_status import CopyUnderWay, LastError, PartitionStatus
from rlm.fetch.follower_start import FollowerFetchAnswer
from rlm.fetch.leader_transition import LeaderTransitionAnswer, LeaderTransitionQuery
from rlm.fetch.list_offsets import OffsetAnswer
from rlm.node_files.scrub_results import PartitionScrub

OffsetIn = Annotated[StrictInt, Field(ge=0, le=INT64_MAX, examples=[1200])]
EpochIn = Annotated[StrictInt, Field(ge=0, le=INT32_MAX, examples=[7])]


class CopyView(Wire):
    """The copy under way."""

    segment_id: str
    start_offset: Offset
    end_offset: Annotated[int, Field(description="Inclusive.")]
    bytes_done: int
    bytes_total: int

    @classmethod
    def of(cls, copy: CopyUnderWay | None) -> CopyView | None:
        """Map."""
        if copy is None:
            return None
        return cls(
            segment_id=str(copy.segment_id.id),
            start_offset=copy.start_offset,
            end_offset=copy.end_offset,
            bytes_done=copy.bytes_done,
            bytes_total=copy.bytes_total,
        )


class ErrorView(Wire):
    """The last thing that went wrong; kept until a copy succeeds."""

    kind: Annotated[str, Field(examples=["retry_later"])]
    text: str
    at_ms: int

    @classmethod
    def of(cls, error: LastError | None) -> ErrorView | None:
        """Map."""
        return None if error is None else cls(kind=error.kind, text=error.text, at_ms=error.at_ms)


class LagView(Wire):
    """Sealed segments that are not copied yet, whether or not they may be."""

    size_bytes: int
    segments: int
    age_ms: Annotated[
        int, Field(description="How long the oldest of them has been sealed.", examples=[5000])
    ]

    @classmethod
    def of(cls, lag: Lag | None) -> LagView | None:
        """Map."""
        if lag is None:
            return None
        return cls(size_bytes=lag.size_bytes, segments=lag.segments, age_ms=lag.age_ms)


LagOrNull = Annotated[
    LagView | None,
    Field(description="Null where another node leads: that one tells it."),
]


class PartitionView(PartitionName):
    """Where a partition stands on this node. Null where this node cannot know."""

    role: Annotated[
        str,
        Field(
            description="leader, follower, remote_only, not_tiered or unknown.", examples=["leader"]
        ),
    ]
    mode: Annotated[str, Field(examples=["sidecar"])]
    delete_state: str | None
    leader_epoch: EpochOrNull
    claim_token: OffsetOrNull
    claimed_by_node: int | None
    log_start_offset: OffsetOrNull
    local_log_start_offset: OffsetOrNull
    highest_copied_offset: Annotated[int | None, Field(description="Inclusive.", examples=[1299])]
    highest_copied_epoch: EpochOrNull
    next_offset: Annotated[int | None, Field(description="Where copying goes on.")]
    active_base_offset: OffsetOrNull
    last_stable_offset: OffsetOrNull
    high_watermark: OffsetOrNull
    lag: LagOrNull
    remote_segments: int
    remote_bytes: int
    lost_ranges: list[LostRangeView]
    copying: CopyView | None
    why_not_copying: Annotated[
        str | None,
        Field(description="A stable word; null while copying.", examples=["no_sealed_segment"]),
    ]
    why_not_text: str
    retry_at_ms: int | None
    blocked: Annotated[str | None, Field(description="Set while a corrupt segment stops it.")]
    last_error: ErrorView | None
    last_scrub: Annotated[
        ScrubSummary | None,
        Field(description="The last one told to the node that is asked; null: none was."),
    ]
    metadata_offset: MetadataOffset

    @classmethod
    def of_status(cls, status: PartitionStatus, scrub: PartitionScrub | None) -> PartitionView:
        """Map."""
        tip, why = status.partition, status.why_not_copying
        return cls(
            topic=tip.topic,
            topic_id=str(tip.topic_id),
            partition=tip.partition,
            role=status.role.value,
            mode=status.mode.name.lower(),
            delete_state=None if status.delete_state is None else status.delete_state.name,
            leader_epoch=known(status.leader_epoch),
            claim_token=known(status.claim_token),
            claimed_by_node=known(status.claimed_by_node),
            log_start_offset=known(status.log_start_offset),
            local_log_start_offset=known(status.local_log_start_offset),
            highest_copied_offset=known(status.highest_copied_offset),
            highest_copied_epoch=known(status.highest_copied_epoch),
            next_offset=known(status.next_offset),
            active_base_offset=known(status.active_base_offset),
            last_stable_offset=known(status.last_stable_offset),
            high_watermark=known(status.high_watermark),
            lag=LagView.of(status.lag),
            remote_segments=status.remote_segments,
            remote_bytes=status.remote_bytes,
            lost_ranges=LostRangeView.all_of(status.lost_ranges),
            copying=CopyView.of(status.copying),
            why_not_copying=None if why is None else why.value,
            why_not_text=status.why_not_text,
            retry_at_ms=status.retry_at_ms,
            blocked=status.blocked,
            last_error=ErrorView.of(status.last_error),
            last_scrub=ScrubSummary.of(scrub),
            metadata_offset=status.metadata_offset,
        )


class OffsetView(PartitionName):
    """One ListOffsets answer. Null where there is no such offset (Kafka's -1)."""

    timestamp: Annotated[str, Field(description="As asked.", examples=["earliest"])]
    offset: OffsetOrNull
    leader_epoch: EpochOrNull
    timestamp_ms: Annotated[
        int | None, Field(description="Of the record found, for a time or max-timestamp.")
    ]
    metadata_offset: MetadataOffset

    @classmethod
    def of_answer(cls, answer: OffsetAnswer, asked: str) -> OffsetView:
        """Map."""
        tip = answer.partition
        return cls(
            topic=tip.topic,
            topic_id=str(tip.topic_id),
            partition=tip.partition,
            timestamp=asked,
            offset=known(answer.offset),
            leader_epoch=known(answer.leader_epoch),
            timestamp_ms=known(answer.timestamp_ms),
            metadata_offset=answer.metadata_offset,
        )


class EpochStartIn(Wire):
    """One line of a leader epoch checkpoint."""

    epoch: EpochIn
    start_offset: OffsetIn


class LeaderTransitionRequest(Wire):
    """What a new leader knows: its epoch, its checkpoint (which ends in that epoch), its log."""

    leader_epoch: EpochIn
    leader_epoch_checkpoint: Annotated[
        list[EpochStartIn], Field(min_length=1, max_length=CHECKPOINT_ENTRIES_MAX)
    ]
    local_log_start_offset: OffsetIn
    log_end_offset: OffsetIn

    def query(self, partition: TopicIdPartition) -> LeaderTransitionQuery:
        """Map."""
        return LeaderTransitionQuery(
            partition=partition,
            leader_epoch=self.leader_epoch,
            checkpoint=tuple(
                EpochEntry(entry.epoch, entry.start_offset)
                for entry in self.leader_epoch_checkpoint
            ),
            local_log_start_offset=self.local_log_start_offset,
            log_end_offset=self.log_end_offset,
        )


class LeaderTransitionView(PartitionName):
    """Where a new leader goes on copying."""

    leader_epoch: Annotated[int, Field(examples=[7])]
    highest_copied_offset: Annotated[int | None, Field(description="Inclusive.", examples=[1299])]
    highest_copied_epoch: EpochOrNull
    next_offset: Annotated[int, Field(description="Copying goes on here.", examples=[1300])]
    log_start_offset: OffsetOrNull
    lineage: Annotated[
        list[EpochStart], Field(description="As it would be after this leader's claim.")
    ]
    lineage_cut_at: Annotated[
        int | None, Field(description="Where that claim would cut the present lineage.")
    ]
    lost_ranges: list[LostRangeView]
    left_overs: Annotated[
        list[SegmentView], Field(description="Unfinished copies and deletions to clean up.")
    ]
    claim: ClaimView | None
    metadata_offset: MetadataOffset

    @classmethod
    def of_answer(cls, answer: LeaderTransitionAnswer) -> LeaderTransitionView:
        """Map."""
        tip = answer.partition
        return cls(
            topic=tip.topic,
            topic_id=str(tip.topic_id),
            partition=tip.partition,
            leader_epoch=answer.leader_epoch,
            highest_copied_offset=known(answer.highest_copied_offset),
            highest_copied_epoch=known(answer.highest_copied_epoch),
            next_offset=answer.next_offset,
            log_start_offset=known(answer.log_start_offset),
            lineage=EpochStart.all_of(answer.lineage),
            lineage_cut_at=answer.lineage_cut_at,
            lost_ranges=LostRangeView.all_of(answer.lost_ranges),
            left_overs=[SegmentView.of_segment(segment) for segment in answer.left_overs],
            claim=ClaimView.of(answer.claim),
            metadata_offset=answer.metadata_offset,
        )


class FollowerFetchView(PartitionName):
    """What a follower does: fetch on locally, rebuild from the tier, or truncate fully."""

    plan: Literal["fetch_locally", "build_from_tier", "truncate_fully"]
    error_code: Annotated[
        int,
        Field(
            description="What a Kafka leader answers to this FETCH: 0, 1 (OFFSET_OUT_OF_RANGE) or "
            "109 (OFFSET_MOVED_TO_TIERED_STORAGE).",
            examples=[109],
        ),
    ]
    fetch_offset: Annotated[
        int, Field(description="Where to fetch from the leader.", examples=[1300])
    ]
    log_start_offset: OffsetOrNull
    leader_local_log_start_offset: Offset
    leader_epochs: Annotated[
        list[EpochStart], Field(description="Replace the follower's checkpoint.")
    ]
    segment: Annotated[
        SegmentView | None,
        Field(description="Restore its producer snapshot at `fetch_offset`."),
    ]
    valid_until: OffsetOrNull
    producer_snapshot_exact: bool
    producer_snapshot_link: Annotated[
        str | None, Field(description="Path of the snapshot's bytes on this node.")
    ]
    leader_epoch_link: Annotated[
        str | None, Field(description="Path of that segment's leader epoch checkpoint.")
    ]
    metadata_offset: MetadataOffset

    @classmethod
    def of_answer(cls, answer: FollowerFetchAnswer) -> FollowerFetchView:
        """Map."""
        tip = answer.partition
        indexes = None
        if answer.segment is not None:
            indexes = (
                f"/v1/topics/{tip.topic}/partitions/{tip.partition}/segments/"
                f"{answer.segment.segment_id.id}/indexes"
            )
        suffix = f"?topic_id={tip.topic_id}"
        return cls(
            topic=tip.topic,
            topic_id=str(tip.topic_id),
            partition=tip.partition,
            plan=answer.plan.value,
            error_code=answer.error_code,
            fetch_offset=answer.fetch_offset,
            log_start_offset=known(answer.log_start_offset),
            leader_local_log_start_offset=answer.leader_local_log_start_offset,
            leader_epochs=EpochStart.all_of(answer.leader_epochs),
            segment=None if answer.segment is None else SegmentView.of_segment(answer.segment),
            valid_until=known(answer.valid_until),
            producer_snapshot_exact=answer.producer_snapshot_exact,
            producer_snapshot_link=indexes and f"{indexes}/producer-snapshot{suffix}",
            leader_epoch_link=indexes and f"{indexes}/leader-epoch{suffix}",
            metadata_offset=answer.metadata_offset,
        )
