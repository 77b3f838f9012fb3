"""The core's warnings in the log: each kind of line once a minute, however often it comes.

A peer repeats a mistake with every request. Kinds differ by their words; numbers do not count.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

REPEATED_AFTER_MS = 60_000
KINDS_MAX = 64
_NUMBER = re.compile(r"-?\d+")


@dataclass(slots=True)
class _Kind:
    said_ms: int
    suppressed: int = 0


class CoreWarnings:
    """One driver's. `monotonic_ms` is the core's clock."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._kinds: dict[str, _Kind] = {}

    def warn(self, message: str) -> None:
        now_ms = self._monotonic_ms()
        words = _NUMBER.sub("#", message)
        kind = self._kinds.get(words)
        if kind is not None and now_ms - kind.said_ms < REPEATED_AFTER_MS:
            kind.suppressed += 1
            return
        if kind is not None and kind.suppressed:
            log.warning("%s (and %d more like it)", message, kind.suppressed)
        else:
            log.warning("%s", message)
        self._kinds.pop(words, None)
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.pop(next(iter(self._kinds)))  # the one that was said the longest ago
        self._kinds[words] = _Kind(now_ms)
