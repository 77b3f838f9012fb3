"""What retention would take from a partition's tier."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from api.models.base import PartitionName, TopicIdText, Wire, known
from api.models.gaps import OffsetIn, Reason
from api.models.topics import Bytes, Milliseconds
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.retention.delete_records_plan import RecordDeletion
from rlm.retention.retention_plan import Deletion, RetentionPlan
from rlmm.partition_state import UNLIMITED, TopicPolicy

PLAN_SEGMENTS_MAX = 1_000
"""Segments listed in one answer; the sums are over all."""


class ExpiringSegment(Wire):
    """A segment that goes, and why."""

    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    reason: Annotated[str, Field(examples=["retention_time"])]
    why: str

    @classmethod
    def of(cls, deletion: Deletion) -> ExpiringSegment:
        """Map."""
        row = deletion.row
        return cls(
            segment_id=str(row.segment_id.id),
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            size_bytes=row.size_bytes,
            max_timestamp_ms=row.max_timestamp_ms,
            reason=deletion.reason.value,
            why=deletion.text,
        )


class RetentionPlanView(Wire):
    """A dry run. Log start moves first; `segments` go in this order, the first thousand are shown.

    `held_back`: why nothing may be deleted now. `brake`: why this pass takes only what lies below
    the recorded log start. `next_due_ms`: when time retention reaches the next segment.
    """

    topic: Annotated[str, Field(examples=["payments"])]
    partition: int
    topic_id: TopicIdText
    new_log_start_offset: Annotated[
        int | None, Field(description="Null: log start stays where it is.", examples=[1200])
    ]
    segments: list[ExpiringSegment]
    segment_count: int
    expiring_bytes: int
    tiered_bytes: int
    next_due_ms: int | None
    held_back: str | None
    brake: str | None
    summary: str
    retention_ms: Annotated[
        int | None, Field(description="In force; null is unlimited.", examples=[604_800_000])
    ]
    retention_bytes: int | None
    retention_of: Annotated[str, Field(examples=["the topic's policy"])]

    @classmethod
    def of(cls, tip: TopicIdPartition, plan: RetentionPlan) -> RetentionPlanView:
        """Map."""
        return cls(
            topic=tip.topic,
            partition=tip.partition,
            topic_id=str(tip.topic_id),
            new_log_start_offset=None if plan.log_start is None else plan.log_start.offset,
            segments=[ExpiringSegment.of(each) for each in plan.deletions[:PLAN_SEGMENTS_MAX]],
            segment_count=len(plan.deletions),
            expiring_bytes=plan.expiring_bytes,
            tiered_bytes=plan.size_bytes,
            next_due_ms=plan.next_due_ms,
            held_back=plan.held_back,
            brake=plan.brake,
            summary=plan.text,
            retention_ms=known(plan.policy.retention_ms),
            retention_bytes=known(plan.policy.retention_bytes),
            retention_of=plan.whose,
        )


class RetentionRequest(Wire):
    """The retention to try. Null is unlimited."""

    retention_ms: Milliseconds | None
    retention_bytes: Bytes | None

    def policy(self, standing: TopicPolicy) -> TopicPolicy:
        """The topic's policy with this retention."""
        return replace(
            standing,
            retention_ms=UNLIMITED if self.retention_ms is None else self.retention_ms,
            retention_bytes=UNLIMITED if self.retention_bytes is None else self.retention_bytes,
        )


class AcceptedPercent(Wire):
    """The share of the partition's tiered bytes that the next pass may take, once."""

    percent: Annotated[StrictFloat | StrictInt, Field(gt=0, le=100, examples=[85])]


class DeleteRecordsRequest(Wire):
    """Everything below `before_offset` is deleted from the partition's tier."""

    before_offset: OffsetIn
    reason: Reason
    dry_run: StrictBool = True


class DeleteRecordsView(PartitionName):
    """What goes, or would go."""

    log_start_offset: Annotated[int, Field(description="As it was before.")]
    new_log_start_offset: Annotated[
        int | None, Field(description="Null: log start is there already, or above.")
    ]
    segment_count: Annotated[int, Field(description="Segments that go as a whole.")]
    size_bytes: int
    kept_to_offset: Annotated[
        int | None,
        Field(
            description="The new log start lies in a segment that ends here (inclusive): nobody "
            "reads below, but its bytes stay until log start passes this. Null: there is none."
        ),
    ]
    changed: bool
    dry_run: bool

    @classmethod
    def told(
        cls, tip: TopicIdPartition, planned: RecordDeletion, *, dry_run: bool
    ) -> DeleteRecordsView:
        """Map."""
        return cls(
            topic=tip.topic,
            topic_id=str(tip.topic_id),
            partition=tip.partition,
            log_start_offset=planned.log_start_offset,
            new_log_start_offset=None if planned.move is None else planned.move.offset,
            segment_count=planned.segments,
            size_bytes=planned.size_bytes,
            kept_to_offset=known(planned.kept),
            changed=planned.move is not None and not dry_run,
            dry_run=dry_run,
        )
