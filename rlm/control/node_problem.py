"""What keeps a node as a whole from its work: shown by the interface, logged when it begins, at
intervals, and when it is over. What each area means stands in `rlm/control/reasons.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_formats.errors import StrandlineError


class ProblemArea(StrEnum):
    """What the trouble is with."""

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


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """One trouble of the whole node. `name` is that of the store, the partition, the switch or the
    reason, None where there is only one such.
    """

    area: ProblemArea
    name: str | None
    text: str


class ProblemLog:
    """Where a part of the node failed: the traceback of what nobody foresaw, once. What was
    foreseen is a problem of the node, and told as such.

    `subject` completes "... failed"; there are few, since each is a place in the code.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: dict[str, str] = {}

    def failed(self, subject: str, error: Exception) -> None:
        """It failed, as it may have before."""
        text = str(error) or type(error).__name__
        if isinstance(error, StrandlineError) or self._told.get(subject) == text:
            return
        self._told[subject] = text
        self._logger.error("%s failed: %s", subject, text, exc_info=error)

    def works(self, subject: str) -> None:
        """It went well."""
        self._told.pop(subject, None)


REPEAT_S = 600.0
"""Trouble that stands is told again after so long: a log that is rotated still has it."""


class StandingProblems:
    """Tells the log what is wrong now: one line when it begins, one at intervals, one at its end.

    `key` tells one trouble from another; its text may change from look to look.
    """

    def __init__(
        self, logger: logging.Logger, monotonic: Callable[[], float], repeat_s: float = REPEAT_S
    ) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._repeat_s = repeat_s
        self._told_at: dict[str, float] = {}

    def tell(self, standing: Mapping[str, str]) -> None:
        """All that is wrong now, text by key."""
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
    """As the log tells them: the area, with a name where there are several, before the text."""
    return {
        f"problem with {each.area.value.replace('_', ' ')}"
        + ("" if each.name is None else f" {each.name}"): each.text
        for each in problems
    }
