"""Log levels of a node, by area."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.http.context import LogControl
from api.models.base import Wire
from rlm.control.log_levels import LogArea, LogLevel


class LogLevelRequest(Wire):
    """The least severe level that is written."""

    level: LogLevel


class LogView(Wire):
    """The log levels in force on the queried node."""

    node_id: Annotated[int, Field(examples=[1])]
    format: Literal["text", "json"]
    levels: dict[LogArea, LogLevel]

    @classmethod
    def of_node(cls, log: LogControl, node_id: int) -> LogView:
        """The present levels."""
        return cls(node_id=node_id, format=log.format, levels=dict(log.levels.levels))
