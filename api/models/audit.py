"""The audit of this node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.models.base import (
    IdText,
    NextCursor,
    NullBelowZero,
    OffsetOrNull,
    TopicIdText,
    Wire,
    name_of,
)
from rlm.control.audit import AuditAction, AuditLine


class AuditLineView(Wire):
    """A step that deleted something, or moved who may write or delete."""

    at_ms: Annotated[int, Field(description="Milliseconds since the epoch, this node's clock.")]
    action: AuditAction
    topic: str | None
    topic_id: TopicIdText | None
    partition: int | None
    segment_id: IdText | None
    start_offset: OffsetOrNull
    end_offset: OffsetOrNull
    size_bytes: Annotated[int | None, NullBelowZero]
    why: str
    by: Annotated[
        str,
        Field(
            description="The node, or the holder of the token that asked it.", examples=["node 1"]
        ),
    ]

    @classmethod
    def of_line(cls, line: AuditLine) -> AuditLineView:
        """A line without a partition has null for its name."""
        tip = line.partition
        nameless = {"topic": None, "topic_id": None, "partition": None}
        return cls.of(line, **(nameless if tip is None else name_of(tip)))


class AuditPageView(Wire):
    """Lines, newest first. A page may be short, or empty, while there are older lines."""

    lines: list[AuditLineView]
    unreadable: Annotated[
        int, Field(description="Lines passed over that a crash cut or that were changed.")
    ]
    next_cursor: NextCursor
