"""Partition status; answers to ListOffsets, to a new leader (KIP-405) and to a follower's fetch."""

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
    NullBelowZero,
    Offset,
    OffsetOrNull,
    PartitionName,
    Wire,
    name_of,
)
from api.models.scrub import ScrubSummary
from api.models.segments import SegmentView
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.partition_status import PartitionStatus
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


class ErrorView(Wire):
    """The last error; kept until a copy succeeds."""

    kind: Annotated[str, Field(examples=["retry_later"])]
    text: str
    at_ms: int


class LagView(Wire):
    """Sealed segments that are not copied yet, whether or not they may be copied."""

    size_bytes: int
    segments: int
    age_ms: Annotated[
        int, Field(description="Time since the oldest of them was sealed.", examples=[5000])
    ]


LagOrNull = Annotated[
    LagView | None,
    Field(description="Null if a different node is beside the leader: that node reports the lag."),
]


class PartitionView(PartitionName):
    """Status of a partition on this node; null for values unknown here."""

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
    claimed_by_node: Annotated[int | None, NullBelowZero]
    log_start_offset: OffsetOrNull
    local_log_start_offset: OffsetOrNull
    highest_copied_offset: Annotated[
        int | None, NullBelowZero, Field(description="Inclusive.", examples=[1299])
    ]
    highest_copied_epoch: EpochOrNull
    next_offset: Annotated[
        int | None, NullBelowZero, Field(description="Offset at which copying goes on.")
    ]
    active_base_offset: OffsetOrNull
    last_stable_offset: OffsetOrNull
    high_watermark: OffsetOrNull
    lag: LagOrNull
    remote_segments: int
    remote_bytes: int
    trash_bytes: Annotated[
        int, Field(description="Part of `remote_bytes` that an expiry mark hides from readers.")
    ]
    lost_ranges: list[LostRangeView]
    copying: CopyView | None
    why_not_copying: Annotated[
        str | None,
        Field(description="A stable word; null while copying.", examples=["no_sealed_segment"]),
    ]
    why_not_text: str
    retry_at_ms: int | None
    blocked: Annotated[
        str | None, Field(description="Set while a corrupt segment stops the partition.")
    ]
    last_error: ErrorView | None
    last_scrub: Annotated[
        ScrubSummary | None,
        Field(description="The last scrub posted to the queried node; null: none."),
    ]
    metadata_offset: MetadataOffset

    @classmethod
    def of_status(cls, status: PartitionStatus, scrub: PartitionScrub | None) -> PartitionView:
        """The view of a status, and the last scrub that was posted to this node."""
        copy, deleting = status.copying, status.delete_state
        return cls.of(
            status,
            **name_of(status.partition),
            mode=status.mode.name.lower(),
            delete_state=None if deleting is None else deleting.name,
            lost_ranges=LostRangeView.all_of(status.lost_ranges),
            copying=copy and CopyView.of(copy, segment_id=str(copy.segment_id.id)),
            last_scrub=scrub,
        )


class OffsetView(PartitionName):
    """An answer of ListOffsets; null if there is no such offset (Kafka's -1)."""

    timestamp: Annotated[str, Field(description="The requested timestamp.", examples=["earliest"])]
    offset: OffsetOrNull
    leader_epoch: EpochOrNull
    timestamp_ms: Annotated[
        int | None,
        NullBelowZero,
        Field(description="Timestamp of the record found, for a time or max-timestamp."),
    ]
    metadata_offset: MetadataOffset

    @classmethod
    def of_answer(cls, answer: OffsetAnswer, asked: str) -> OffsetView:
        """The view of an answer; `asked` is the timestamp as requested."""
        return cls.of(answer, **name_of(answer.partition), timestamp=asked)


class EpochStartIn(Wire):
    """One line of a leader epoch checkpoint."""

    epoch: EpochIn
    start_offset: OffsetIn


class LeaderTransitionRequest(Wire):
    """A new leader's epoch, checkpoint (which ends in that epoch) and log bounds."""

    leader_epoch: EpochIn
    leader_epoch_checkpoint: Annotated[
        list[EpochStartIn], Field(min_length=1, max_length=CHECKPOINT_ENTRIES_MAX)
    ]
    local_log_start_offset: OffsetIn
    log_end_offset: OffsetIn

    def query(self, partition: TopicIdPartition) -> LeaderTransitionQuery:
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
    """The offset and state with which a new leader continues copying."""

    leader_epoch: Annotated[int, Field(examples=[7])]
    highest_copied_offset: Annotated[
        int | None, NullBelowZero, Field(description="Inclusive.", examples=[1299])
    ]
    highest_copied_epoch: EpochOrNull
    next_offset: Annotated[
        int, Field(description="Offset at which copying goes on.", examples=[1300])
    ]
    log_start_offset: OffsetOrNull
    lineage: Annotated[
        list[EpochStart], Field(description="The lineage after this leader's claim.")
    ]
    lineage_cut_at: Annotated[
        int | None,
        Field(description="Offset at which this leader's claim would cut the present lineage."),
    ]
    lost_ranges: list[LostRangeView]
    left_overs: Annotated[
        list[SegmentView], Field(description="Unfinished copies and deletions to clean up.")
    ]
    claim: ClaimView | None
    metadata_offset: MetadataOffset

    @classmethod
    def of_answer(cls, answer: LeaderTransitionAnswer) -> LeaderTransitionView:
        """The view of the remote log manager's answer."""
        return cls.of(
            answer,
            **name_of(answer.partition),
            lost_ranges=LostRangeView.all_of(answer.lost_ranges),
            left_overs=[SegmentView.of_segment(segment) for segment in answer.left_overs],
        )


class FollowerFetchView(PartitionName):
    """The follower's next step: fetch from the leader, rebuild from the tier, or truncate fully."""

    plan: Literal["fetch_locally", "build_from_tier", "truncate_fully"]
    error_code: Annotated[
        int,
        Field(
            description="Error code of a Kafka leader's answer to this FETCH: 0, 1 "
            "(OFFSET_OUT_OF_RANGE) or 109 (OFFSET_MOVED_TO_TIERED_STORAGE).",
            examples=[109],
        ),
    ]
    fetch_offset: Annotated[
        int, Field(description="Offset to fetch from the leader.", examples=[1300])
    ]
    log_start_offset: OffsetOrNull
    leader_local_log_start_offset: Offset
    leader_epochs: Annotated[
        list[EpochStart], Field(description="Leader epoch checkpoint for the follower.")
    ]
    segment: Annotated[
        SegmentView | None,
        Field(description="Segment whose producer snapshot is restored at `fetch_offset`."),
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
        tip = answer.partition
        indexes = None
        if answer.segment is not None:
            indexes = (
                f"/v1/topics/{tip.topic}/partitions/{tip.partition}/segments/"
                f"{answer.segment.segment_id.id}/indexes"
            )
        suffix = f"?topic_id={tip.topic_id}"
        return cls.of(
            answer,
            **name_of(tip),
            plan=answer.plan.value,
            segment=answer.segment and SegmentView.of_segment(answer.segment),
            producer_snapshot_link=indexes and f"{indexes}/producer-snapshot{suffix}",
            leader_epoch_link=indexes and f"{indexes}/leader-epoch{suffix}",
        )
