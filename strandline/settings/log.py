"""Settings of the log that a node writes to standard error."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from rlm.control.log_levels import LogArea, LogLevel
from strandline.settings.fields import Section
from strandline.settings.log_lines import LogFormat


class LogLevelSettings(Section):
    """The least severe level that is logged, for each area."""

    node: LogLevel = Field(
        default=LogLevel.INFO,
        description="The process itself: start, stop, signals. `debug`, `info`, `warning` or "
        "`error`, as for the other areas.",
    )
    http: LogLevel = Field(
        default=LogLevel.INFO,
        description="The HTTP interface; `debug`: a line for each request.",
    )
    quorum: LogLevel = Field(
        default=LogLevel.INFO, description="The metadata quorum, its log and its connections."
    )
    metadata: LogLevel = Field(
        default=LogLevel.INFO, description="The metadata and its view on this node."
    )
    tier: LogLevel = Field(
        default=LogLevel.INFO,
        description="Copying, retention, deletion, repair; `debug`: also the progress of each "
        "copy.",
    )
    workers: LogLevel = Field(
        default=LogLevel.INFO, description="The worker processes: starts and ends."
    )
    stores: LogLevel = Field(
        default=LogLevel.INFO,
        description="The object stores; `debug`: a line for each call.",
    )

    def by_area(self) -> Mapping[LogArea, LogLevel]:
        return {area: getattr(self, area) for area in LogArea}


class LogSettings(Section):
    """The log on standard error. HTTP requests may change the levels while the node runs."""

    format: LogFormat = Field(
        default="text", description="`text` for people, or `json`: one object a line."
    )
    levels: LogLevelSettings = LogLevelSettings()
