"""What keeps a node as a whole from its work: shown by the interface, logged when it changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """One trouble of the whole node. `name` is the store's, None where there is only one such."""

    area: ProblemArea
    name: str | None
    text: str


class ProblemLog:
    """One line when a trouble begins or changes, one when it is over; nothing in between.

    `subject` completes "... failed"; there are few, since each is a place in the code.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: dict[str, str] = {}
        self._standing: frozenset[str] = frozenset()

    def failed(self, subject: str, error: Exception) -> None:
        """A traceback only with what nobody foresaw."""
        text = str(error) or type(error).__name__
        if self._told.get(subject) == text:
            return
        self._told[subject] = text
        foreseen = isinstance(error, StrandlineError)
        self._logger.error("%s failed: %s", subject, text, exc_info=None if foreseen else error)

    def works(self, subject: str) -> None:
        """It went well."""
        if self._told.pop(subject, None) is not None:
            self._logger.info("%s works again", subject)

    def standing(self, texts: Iterable[str]) -> None:
        """All that is wrong now, of what is not one failed step: one line for each that is new."""
        now = frozenset(texts)
        for text in sorted(now - self._standing):
            self._logger.error("%s", text)
        for text in sorted(self._standing - now):
            self._logger.info("over: %s", text)
        self._standing = now
