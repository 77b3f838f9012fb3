"""The audit of a node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.models.base import (
    NEXT_CURSOR,
    IdText,
    NextCursor,
    NullBelowZero,
    OffsetOrNull,
    TopicIdText,
    Wire,
    name_of,
)
from api.models.cluster_parts import NodePartView
from rlm.control.audit import AuditAction, AuditLine

NodeCursor = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,100}$")]
"""A cursor of one node's audit. It is checked, as another node's cursor becomes part of the cursor
of all nodes' lines.
"""


class AuditLineView(Wire):
    """A step that deleted something, or changed which node may write or delete."""

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
            description="The node, or the holder of the token of the request.", examples=["node 1"]
        ),
    ]
    cursor: Annotated[
        NodeCursor, Field(description="Pass it as `cursor` for the lines older than this one.")
    ]

    @classmethod
    def of_line(cls, line: AuditLine, cursor: str) -> AuditLineView:
        """The view of a line; a line without a partition has null for its name."""
        tip = line.partition
        nameless = {"topic": None, "topic_id": None, "partition": None}
        return cls.of(line, cursor=cursor, **(nameless if tip is None else name_of(tip)))


class AuditPageView(Wire):
    """Lines, newest first. A page may be short, or empty, although there are older lines."""

    cursor: Annotated[
        NodeCursor,
        Field(
            description="Cursor of this page: returns the same lines, without those written since."
        ),
    ]
    lines: list[AuditLineView]
    unreadable: Annotated[
        int, Field(description="Lines passed over that a crash cut or that were changed.")
    ]
    next_cursor: Annotated[NodeCursor | None, NEXT_CURSOR]


class NodeAuditLineView(AuditLineView):
    """A line and the node that wrote it. Its `cursor` is for that node's own audit."""

    node: Annotated[int, Field(examples=[3])]


class WholeAuditView(Wire):
    """Lines of all nodes, newest first. A page may be short, or empty, although there are older
    lines. A node is no longer asked once all its lines were shown.
    """

    nodes: list[NodePartView]
    lines: list[NodeAuditLineView]
    unreadable: Annotated[
        int, Field(description="Lines passed over that a crash cut or that were changed.")
    ]
    next_cursor: NextCursor
