"""The troubles that keep this node's replica from a part of its work, while they last.

Each has a name, for a place in the code, and the latest text. A repeated trouble is over once it
was not reported for `STANDS_MS`, that of an occasional task when the task succeeds. The core has
more names (`rlmm/raft/actions.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

CLIENTS = "clients"
"""The name of a trouble: clients that do not log in request more than their common share."""
DAMAGED_SNAPSHOT = "damaged_snapshot"
"""The name of a trouble: snapshots can't be read."""
DOWNLOADS = "downloads"
"""The name of a trouble: a replica is too slow for the snapshot that it downloads."""
OLD_SNAPSHOTS = "old_snapshots"
"""The name of a trouble: old snapshots could not be removed."""
SNAPSHOT = "snapshot"
"""The name of a trouble: a snapshot could not be written, so that the log is not cut."""

STANDS_MS = 60_000
REPEATED_AFTER_MS = 60_000
KINDS_MAX = 64
_NUMBER = re.compile(r"-?\d+")


class QuorumTroubles:
    """The troubles of one replica; on the event loop. `monotonic_ms` is the core's clock."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._repeated: dict[str, tuple[str, int]] = {}
        self._standing: dict[str, str] = {}

    def repeated(self, name: str, text: str) -> None:
        """Report a trouble that is reported again as long as its cause exists."""
        self._repeated[name] = (text, self._monotonic_ms())

    def began(self, name: str, text: str) -> None:
        """Report a trouble that lasts until `over`."""
        self._standing[name] = text

    def over(self, name: str) -> None:
        """End a lasting trouble: its task succeeded."""
        self._standing.pop(name, None)

    def standing(self) -> tuple[tuple[str, str], ...]:
        """The name and text of each present trouble, by name."""
        since = self._monotonic_ms() - STANDS_MS
        recent = {name: text for name, (text, at) in self._repeated.items() if at >= since}
        return tuple(sorted({**recent, **self._standing}.items()))


@dataclass(slots=True)
class _Kind:
    said_ms: int
    suppressed: int = 0


class CoreWarnings:
    """Writes the core's warnings into the log: each kind of line once a minute, however often it
    comes, since a peer repeats a mistake with every request. Lines that differ only in numbers are
    of one kind. `monotonic_ms` is the core's clock.
    """

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
            self._kinds.pop(next(iter(self._kinds)))  # the one logged the longest ago
        self._kinds[words] = _Kind(now_ms)
