"""Troubles that keep this node's replica from a part of its work, while they stand.

Each has a name, for a place in the code, and the latest text. A repeated trouble is over when it
was not reported for `STANDS_MS`; an occasional task's when the task succeeds. The core names some
more (`rlmm/raft/actions.py`).
"""

from __future__ import annotations

from collections.abc import Callable

CLIENTS = "clients"
"""Clients that do not log in ask for more than their share."""
DOWNLOADS = "downloads"
"""A replica downloads a snapshot too slowly for it to stay."""
OLD_SNAPSHOTS = "old_snapshots"
"""Old snapshots could not be removed."""
SNAPSHOT = "snapshot"
"""A snapshot could not be written, so that the log is not cut."""

STANDS_MS = 60_000


class QuorumTroubles:
    """One replica's; on the event loop. `monotonic_ms` is the core's clock."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._repeated: dict[str, tuple[str, int]] = {}
        self._standing: dict[str, str] = {}

    def repeated(self, name: str, text: str) -> None:
        """Report a trouble that comes back while its cause is there."""
        self._repeated[name] = (text, self._monotonic_ms())

    def began(self, name: str, text: str) -> None:
        """Report a trouble that stands until `over`."""
        self._standing[name] = text

    def over(self, name: str) -> None:
        """The task succeeded."""
        self._standing.pop(name, None)

    def standing(self) -> tuple[tuple[str, str], ...]:
        """Name and text of each, by name."""
        since = self._monotonic_ms() - STANDS_MS
        recent = {name: text for name, (text, at) in self._repeated.items() if at >= since}
        return tuple(sorted({**recent, **self._standing}.items()))
