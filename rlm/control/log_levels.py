"""Log levels by area: an area is a group of loggers.

A node's process and its workers keep the same levels. Loggers of libraries belong to no area and
stay at INFO: some write keys and tokens at DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum


class LogArea(StrEnum):
    """The areas with a level of their own."""

    NODE = "node"
    HTTP = "http"
    QUORUM = "quorum"
    METADATA = "metadata"
    TIER = "tier"
    WORKERS = "workers"
    STORES = "stores"


class LogLevel(StrEnum):
    """The least level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LOGGERS: Mapping[LogArea, tuple[str, ...]] = {
    LogArea.NODE: ("strandline",),
    LogArea.HTTP: ("strandline.api",),
    LogArea.QUORUM: ("rlmm.quorum", "rlmm.raft", "rlmm.wire", "rlmm.log", "kafka_client"),
    LogArea.METADATA: ("rlmm",),
    LogArea.TIER: ("rlm", "kafka_listener"),
    LogArea.WORKERS: ("rlm.worker",),
    LogArea.STORES: ("rsm_backends",),
}
"""A logger belongs to the area with the longest of these names that it is, or is below."""

_AREAS = {name: area for area, names in LOGGERS.items() for name in names}

OnLevels = Callable[[Mapping[LogArea, LogLevel]], None]


def area_of(logger: str) -> LogArea | None:
    """The area of a logger; None for a library's."""
    name = logger
    while name:
        if name in _AREAS:
            return _AREAS[name]
        name = name.rpartition(".")[0]
    return None


def set_levels(levels: Mapping[LogArea, LogLevel]) -> None:
    """Set the loggers of this process."""
    for area, level in levels.items():
        for name in LOGGERS[area]:
            logging.getLogger(name).setLevel(level.upper())


class LogLevels:
    def __init__(self, levels: Mapping[LogArea, LogLevel] | None = None) -> None:
        """Areas that `levels` leaves out write INFO. Changes nothing yet."""
        self._levels = dict.fromkeys(LogArea, LogLevel.INFO) | dict(levels or {})
        self._listeners: list[OnLevels] = []

    @property
    def levels(self) -> Mapping[LogArea, LogLevel]:
        """The present levels of all areas."""
        return dict(self._levels)

    def change(self, area: LogArea, level: LogLevel) -> None:
        """Change a level, here and for all listeners."""
        self._levels[area] = level
        for tell in self._listeners:
            tell(self.levels)

    def tell(self, listener: OnLevels) -> None:
        """Call `listener` with the present levels, and at every change."""
        self._listeners.append(listener)
        listener(self.levels)
