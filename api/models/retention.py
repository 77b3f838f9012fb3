"""Retention of a partition: the plan of deletions, and requests to delete more."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from api.models.base import IdText, PartitionName, TopicIdText, Wire, known, name_of
from api.models.gaps import OffsetIn, Reason
from api.models.topics import Bytes, Milliseconds
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.retention.delete_records_plan import RecordDeletion
from rlm.retention.retention_plan import Deletion, RetentionPlan
from rlmm.partition_state import UNLIMITED, TopicPolicy

PLAN_SEGMENTS_MAX = 1_000
"""The most segments listed in one answer; the sums count all of them."""


class ExpiringSegment(Wire):
    """A segment that would be deleted, and why."""

    segment_id: IdText
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    reason: Annotated[str, Field(examples=["retention_time"])]
    why: str

    @classmethod
    def of_deletion(cls, deletion: Deletion) -> ExpiringSegment:
        """A planned deletion."""
        row = deletion.row
        return cls.of(
            row, segment_id=row.segment_id.id, reason=deletion.reason.value, why=deletion.text
        )


class RetentionPlanView(Wire):
    """The plan of the next pass, as a dry run. The log start moves first; `segments` are deleted in
    this order, and the first thousand are listed; the last `trashed_count` of all go to the trash
    instead, and those outside the lineage stay for its time first. `held_back`: why nothing may be
    deleted now. `brake`, and `hold` (by an admin who restored records that the policy had deleted):
    why this pass deletes only below the recorded log start. `next_due_ms`: when time retention
    reaches the next segment.
    """

    topic: Annotated[str, Field(examples=["payments"])]
    partition: int
    topic_id: TopicIdText
    new_log_start_offset: Annotated[
        int | None, Field(description="Null: the log start does not move.", examples=[1200])
    ]
    new_readable_offset: Annotated[
        int | None,
        Field(
            description="Readers will start at this offset; null: their start does not move.",
            examples=[1500],
        ),
    ]
    segments: list[ExpiringSegment]
    segment_count: int
    trashed_count: int
    expiring_bytes: int
    tiered_bytes: int
    next_due_ms: int | None
    held_back: str | None
    brake: str | None
    hold: str | None
    accepted: Annotated[
        str | None,
        Field(
            description="The share that was accepted for the next pass of the queried node, and "
            "by whom."
        ),
    ]
    summary: str
    retention_ms: Annotated[
        int | None,
        Field(description="Retention in force; null: unlimited.", examples=[604_800_000]),
    ]
    retention_bytes: int | None
    retention_of: Annotated[str, Field(examples=["the topic's policy"])]

    @classmethod
    def of_plan(
        cls, tip: TopicIdPartition, plan: RetentionPlan, accepted: str | None
    ) -> RetentionPlanView:
        taken = plan.taken
        return cls.of(
            plan,
            **name_of(tip),
            new_log_start_offset=None if plan.log_start is None else plan.log_start.offset,
            new_readable_offset=None if plan.up_to is None else plan.up_to.offset,
            segments=[ExpiringSegment.of_deletion(each) for each in taken[:PLAN_SEGMENTS_MAX]],
            segment_count=len(taken),
            trashed_count=len(plan.marked),
            accepted=accepted,
            tiered_bytes=plan.size_bytes,
            summary=plan.text,
            retention_ms=known(plan.policy.retention_ms),
            retention_bytes=known(plan.policy.retention_bytes),
            retention_of=plan.whose,
        )


class RetentionRequest(Wire):
    """The retention to try; null: unlimited."""

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
    """Let the next pass delete what the plan shows, up to a share of the tiered bytes."""

    percent: Annotated[StrictFloat | StrictInt, Field(gt=0, le=100, examples=[85])]
    up_to_offset: Annotated[
        OffsetIn | None,
        Field(
            description="`new_readable_offset` of the plan; null if it is null there.",
            examples=[1200],
        ),
    ]


class DeleteRecordsRequest(Wire):
    """Delete everything below `before_offset` from the partition's tier."""

    before_offset: OffsetIn
    reason: Reason
    dry_run: StrictBool = True


class DeleteRecordsView(PartitionName):
    """Effect of a deletion of records."""

    log_start_offset: Annotated[int, Field(description="The log start before the deletion.")]
    new_log_start_offset: Annotated[
        int | None, Field(description="Null: the log start is at or above it already.")
    ]
    segment_count: Annotated[int, Field(description="Segments that are deleted completely.")]
    size_bytes: int
    kept_to_offset: Annotated[
        int | None,
        Field(
            description="Last offset (inclusive) of the segment that contains the new log start: "
            "offsets below the log start are not readable, but the segment's bytes are kept "
            "until the log start passes this offset. Null: no such segment."
        ),
    ]
    held_back: Annotated[
        str | None,
        Field(description="Why the deletion would be refused now; null: it would be done."),
    ]
    changed: bool
    dry_run: bool

    @classmethod
    def told(
        cls, tip: TopicIdPartition, planned: RecordDeletion, *, dry_run: bool
    ) -> DeleteRecordsView:
        """A deletion of records that was planned, or made."""
        move = planned.move
        return cls.of(
            planned,
            **name_of(tip),
            new_log_start_offset=None if move is None else move.offset,
            segment_count=planned.segments,
            kept_to_offset=known(planned.kept),
            changed=move is not None and not dry_run,
            dry_run=dry_run,
        )
