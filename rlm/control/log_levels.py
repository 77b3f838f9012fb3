"""How much each part of the program writes into its log: an area is some loggers, and has a level.

A node's own process and its workers keep the same levels. Loggers of libraries belong to no area
and stay at INFO: some write keys and tokens at DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum


class LogArea(StrEnum):
    """What can be made louder or quieter by itself."""

    NODE = "node"
    HTTP = "http"
    QUORUM = "quorum"
    METADATA = "metadata"
    TIER = "tier"
    WORKERS = "workers"
    STORES = "stores"


class LogLevel(StrEnum):
    """The least that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LOGGERS: Mapping[LogArea, tuple[str, ...]] = {
    LogArea.NODE: ("strandline",),
    LogArea.HTTP: ("strandline.api",),
    LogArea.QUORUM: ("rlmm.quorum", "rlmm.raft", "rlmm.wire", "rlmm.log", "kafka_client"),
    LogArea.METADATA: ("rlmm",),
    LogArea.TIER: ("rlm",),
    LogArea.WORKERS: ("rlm.worker",),
    LogArea.STORES: ("rsm_backends",),
}
"""A logger belongs to the area with the longest of these names that it is, or stands below."""

_AREAS = {name: area for area, names in LOGGERS.items() for name in names}

OnLevels = Callable[[Mapping[LogArea, LogLevel]], None]


def area_of(logger: str) -> LogArea | None:
    """The area of a logger; None: a library's."""
    name = logger
    while name:
        if name in _AREAS:
            return _AREAS[name]
        name = name.rpartition(".")[0]
    return None


def set_levels(levels: Mapping[LogArea, LogLevel]) -> None:
    """Have the loggers of this process follow."""
    for area, level in levels.items():
        for name in LOGGERS[area]:
            logging.getLogger(name).setLevel(level.upper())


class LogLevels:
    """The levels of a node while it runs."""

    def __init__(self, levels: Mapping[LogArea, LogLevel] | None = None) -> None:
        """Areas that `levels` leaves out write INFO. Changes nothing yet."""
        self._levels = dict.fromkeys(LogArea, LogLevel.INFO) | dict(levels or {})
        self._listeners: list[OnLevels] = []

    @property
    def levels(self) -> Mapping[LogArea, LogLevel]:
        """Those that hold now, of every area."""
        return dict(self._levels)

    def change(self, area: LogArea, level: LogLevel) -> None:
        """Another level from now on, here and at whoever listens."""
        self._levels[area] = level
        for tell in self._listeners:
            tell(self.levels)

    def tell(self, listener: OnLevels) -> None:
        """`listener` hears of the levels that hold, at once, and of every change."""
        self._listeners.append(listener)
        listener(self.levels)
