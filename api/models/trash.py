"""The trash: records that retention hid from readers and has not deleted yet, and topics to be
deleted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from api.models.base import (
    MetadataOffset,
    NextCursor,
    OffsetOrNull,
    PartitionName,
    Wire,
    name_of,
)
from api.models.gaps import OffsetIn, Reason
from rlmm.partition_state import ExpiryHold, ExpiryMark, PartitionState, TopicPolicy
from rlmm.segment import PartitionDeleteState

MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED


class TrashMark(Wire):
    """Everything from the previous mark up to `before_offset` (exclusive) is in the trash."""

    before_offset: Annotated[int, Field(examples=[1500])]
    marked_at_offset: Annotated[
        int, Field(description="Metadata offset of the mark's last record.", examples=[5107])
    ]
    marked_ms: int
    goes_from_ms: Annotated[
        int, Field(description="Approximate start of its deletion; measured time decides.")
    ]
    segments: int
    size_bytes: int
    why: str

    @classmethod
    def of_mark(cls, mark: ExpiryMark) -> TrashMark:
        return cls.of(
            mark, before_offset=mark.offset, marked_at_offset=mark.marked_at,
            goes_from_ms=mark.marked_ms + mark.trash_ms,
        )  # fmt: skip


class TrashHold(Wire):
    """Retention deletes nothing until the topic gets a different retention, or the hold is
    released.
    """

    who: str
    why: str
    set_ms: int

    @classmethod
    def of_hold(cls, hold: ExpiryHold | None) -> TrashHold | None:
        return None if hold is None else cls.of(hold)


class TrashedPartition(PartitionName):
    """A partition with segments in the trash, or with a hold. `state`: `deleted` (all of it is
    marked for deletion), `expired` (by retention: `marks`), or `held`.
    """

    state: Literal["deleted", "expired", "held"]
    log_start_offset: OffsetOrNull
    readable_from_offset: OffsetOrNull
    segments: int
    size_bytes: int
    goes_from_ms: Annotated[
        int | None,
        Field(description="Approximate start of the first deletion; null: none is planned."),
    ]
    marks: list[TrashMark]
    hold: TrashHold | None

    @classmethod
    def of_state(cls, state: PartitionState, policy: TopicPolicy) -> TrashedPartition:
        deleted, expiry = state.delete_state is MARKED, state.expiry
        marks = [TrashMark.of_mark(mark) for mark in expiry.marks]
        goes_from_ms = [mark.goes_from_ms for mark in marks]
        return cls(
            **name_of(state.partition),
            state="deleted" if deleted else "expired" if marks else "held",
            log_start_offset=state.log_start_offset,
            readable_from_offset=state.first_readable_offset,
            segments=state.segment_count if deleted else expiry.segments,
            size_bytes=state.size_bytes if deleted else expiry.size_bytes,
            goes_from_ms=state.delete_due_ms if deleted else min(goes_from_ms, default=None),
            marks=marks,
            hold=TrashHold.of_hold(expiry.held_by(policy.offset)),
        )


class TrashPage(Wire):
    """Partitions with segments in the trash, by topic and number."""

    partitions: list[TrashedPartition]
    delegated_partitions: Annotated[
        int,
        Field(
            description="Partitions in mode DELEGATED: the broker carries out their retention, "
            "without a trash. Deleted topics go to the trash all the same."
        ),
    ]
    trash_s: Annotated[
        float, Field(description="`retention.trash_s` of the queried node; 0: no trash.")
    ]
    next_cursor: NextCursor
    metadata_offset: MetadataOffset


class RestoreRequest(Wire):
    """Remove all expiry marks of the partition."""

    why: Reason
    hold: Annotated[
        StrictBool | None,
        Field(
            description="Stop its retention until the topic gets a different retention, or the "
            "hold is released; null: only if the policy in force would delete the same again."
        ),
    ] = None


class ReleaseRequest(Wire):
    """End the hold of a partition's retention."""

    why: Reason


class RestoredPartition(PartitionName):
    """The restored partition: readers start at `log_start_offset` again. `hold`: its retention is
    on hold.
    """

    log_start_offset: OffsetOrNull
    segments: int
    size_bytes: int
    hold: bool


class EmptyTrashRequest(Wire):
    """Delete the content of the trash without waiting for its time."""

    reason: Reason
    dry_run: StrictBool = True
    up_to_offset: Annotated[
        OffsetIn | None,
        Field(
            description="`new_log_start_offset` of the dry run, or `before_offset` of a mark: "
            "segments that came into the trash later stay. Required unless `dry_run`.",
            examples=[1500],
        ),
    ] = None
