"""A topic's data in the tier, and its deletion."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from api.models.base import NextCursor, TopicIdText, Wire, known
from api.models.gaps import Reason
from rlmm.partition_state import PartitionState
from rlmm.segment import PartitionDeleteState


class TieredPartitionView(Wire):
    """A partition's data in the tier, and its deletion."""

    partition: int
    topic_id: TopicIdText
    remote_segments: int
    remote_bytes: int
    delete_state: Annotated[
        str | None,
        Field(
            description="Null: not marked for deletion. `marked`: can be undone; `started`: can't.",
            examples=["marked"],
        ),
    ]
    marked_at_ms: int | None
    grace_ms: Annotated[int | None, Field(examples=[604_800_000])]
    goes_from_ms: Annotated[
        int | None,
        Field(
            description="Approximate start of its deletion, ms since the epoch. The nodes "
            "measure the grace; no clock decides."
        ),
    ]

    @classmethod
    def of_state(cls, state: PartitionState) -> TieredPartitionView:
        """The view of a partition's state in the metadata."""
        going = state.delete_state
        return cls(
            partition=state.partition.partition,
            topic_id=str(state.partition.topic_id),
            remote_segments=state.segment_count,
            remote_bytes=state.size_bytes,
            delete_state=None if going is None else _NAMES[going],
            marked_at_ms=known(state.delete_marked_at_ms),
            grace_ms=known(state.delete_grace_ms),
            goes_from_ms=None if going is None else state.delete_due_ms,
        )


_NAMES = {
    PartitionDeleteState.DELETE_PARTITION_MARKED: "marked",
    PartitionDeleteState.DELETE_PARTITION_STARTED: "started",
    PartitionDeleteState.DELETE_PARTITION_FINISHED: "finished",
}


class TieredDataView(Wire):
    """A page of a topic's partitions in the tier, by number and topic id."""

    topic: Annotated[str, Field(examples=["payments"])]
    partitions: list[TieredPartitionView]
    next_cursor: NextCursor


class TieredDataChange(Wire):
    """Number of partitions that a request changed, without those already in that state."""

    topic: Annotated[str, Field(examples=["payments"])]
    changed: Annotated[int, Field(examples=[12])]
    goes_from_ms: Annotated[
        int | None,
        Field(description="The earliest start of all marked partitions; null if there is none."),
    ]


class UndoRequest(Wire):
    """Undo the deletion, and make the records readable again that retention had hidden, as
    `trash/restore` does.
    """

    why: Reason
    hold: Annotated[
        StrictBool | None,
        Field(
            description="Stop the retention of partitions with segments in the trash; null: only "
            "of those whose policy in force would delete the same again."
        ),
    ] = None


class DeletionUndone(TieredDataChange):
    """`restored`: partitions in which records are readable again that retention had hidden. Without
    `hold`, the next pass of retention hides them again if the policy says so.
    """

    restored: int
    held: Annotated[int, Field(description="Restored partitions whose retention is on hold.")]
