"""The audit of this node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.models.base import NextCursor, OffsetOrNull, TopicIdText, Wire, known
from rlm.control.audit import AuditAction, AuditLine


class AuditLineView(Wire):
    """One step that took something away, or moved who may."""

    at_ms: Annotated[int, Field(description="Milliseconds since the epoch, this node's clock.")]
    action: AuditAction
    topic: str | None
    topic_id: TopicIdText | None
    partition: int | None
    segment_id: str | None
    start_offset: OffsetOrNull
    end_offset: OffsetOrNull
    size_bytes: int | None
    why: str
    by: Annotated[str, Field(description="The node, or who asked it.", examples=["node 1"])]

    @classmethod
    def of(cls, line: AuditLine) -> AuditLineView:
        """Map."""
        tip = line.partition
        return cls(
            at_ms=line.at_ms,
            action=line.action,
            topic=None if tip is None else tip.topic,
            topic_id=None if tip is None else str(tip.topic_id),
            partition=None if tip is None else tip.partition,
            segment_id=None if line.segment_id is None else str(line.segment_id),
            start_offset=known(line.start_offset),
            end_offset=known(line.end_offset),
            size_bytes=known(line.size_bytes),
            why=line.why,
            by=line.by,
        )


class AuditPageView(Wire):
    """Newest first. A page may be short, or empty, while there are older lines."""

    lines: list[AuditLineView]
    unreadable: Annotated[
        int, Field(description="Lines met that a crash tore, or that somebody changed.")
    ]
    next_cursor: NextCursor
