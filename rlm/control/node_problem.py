"""Problems of a node as a whole: shown by the interface, logged when they begin, at intervals, and
when they end. `rlm/control/reasons.py` explains the areas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_formats.errors import StrandlineError


class ProblemArea(StrEnum):
    """The subject of a problem."""

    LOG_DIRS = "log_dirs"
    STORE = "store"
    CLOCK = "clock"
    HOLD = "hold"
    SNAPSHOTS = "snapshots"
    AUDIT = "audit"
    RETENTION = "retention"
    PAUSED = "paused"
    TOPICS = "topics"
    TASKS = "tasks"
    SCRUB = "scrub"
    DAMAGE = "damage"
    PARTITIONS = "partitions"
    QUORUM = "quorum"
    DELETION = "deletion"
    WORKERS = "workers"
    LOG = "log"
    PLUGIN = "plugin"
    READ = "read"
    NODES = "nodes"
    MIGRATION = "migration"


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """One problem of the whole node. `name`: the store, partition, switch or reason, None if
    unneeded.
    """

    area: ProblemArea
    name: str | None
    text: str


class ProblemLog:
    """Logs failures of a part of the node: the traceback of each unforeseen one, once. Foreseen
    ones are problems of the node.

    `subject` completes "... failed"; there are few, one per place in the code.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: dict[str, str] = {}

    def failed(self, subject: str, error: Exception) -> None:
        """Note a failure, perhaps a repeated one."""
        text = str(error) or type(error).__name__
        if isinstance(error, StrandlineError) or self._told.get(subject) == text:
            return
        self._told[subject] = text
        self._logger.error("%s failed: %s", subject, text, exc_info=error)

    def works(self, subject: str) -> None:
        """Note a success."""
        self._told.pop(subject, None)


REPEAT_S = 600.0
"""The pause after which a standing problem is logged again: a rotated log still has it."""


class StandingProblems:
    """Logs standing problems: one line at their begin, one at intervals, one at their end. `key`
    identifies a problem; its text may change from look to look.
    """

    def __init__(
        self, logger: logging.Logger, monotonic: Callable[[], float], repeat_s: float = REPEAT_S
    ) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._repeat_s = repeat_s
        self._told_at: dict[str, float] = {}

    def tell(self, standing: Mapping[str, str]) -> None:
        """Take all present problems, text by key."""
        now = self._monotonic()
        for key in sorted(standing):
            told_at = self._told_at.get(key)
            if told_at is None or now - told_at >= self._repeat_s:
                still = "" if told_at is None else "still: "
                self._logger.error("%s%s: %s", still, key, standing[key])
                self._told_at[key] = now
        for key in sorted(self._told_at.keys() - standing.keys()):
            self._logger.info("over: %s", key)
            del self._told_at[key]


def by_key(problems: Iterable[NodeProblem]) -> dict[str, str]:
    """Problems as the log has them: by area, and name if there are several."""
    return {
        f"problem with {each.area.value.replace('_', ' ')}"
        + ("" if each.name is None else f" {each.name}"): each.text
        for each in problems
    }
