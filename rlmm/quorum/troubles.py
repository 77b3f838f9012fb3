"""What keeps this node's replica from a part of its work, for as long as it stands.

Each has a name, which is a place in the code, and the latest text. What is told again and again is
over when it was not told for `STANDS_MS`; what is done at times is over when it went well.
The core names some more (`rlmm/raft/actions.py`).
"""

from __future__ import annotations

from collections.abc import Callable

CLIENTS = "clients"
"""Clients that do not log in ask for more than their share."""
DOWNLOADS = "downloads"
"""A replica downloads a snapshot too slowly for it to stay."""
OLD_SNAPSHOTS = "old_snapshots"
"""They could not be removed."""
SNAPSHOT = "snapshot"
"""It could not be written, so that the log is not cut."""

STANDS_MS = 60_000


class QuorumTroubles:
    """One replica's; on the event loop. `monotonic_ms` is the core's clock."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._repeated: dict[str, tuple[str, int]] = {}
        self._standing: dict[str, str] = {}

    def repeated(self, name: str, text: str) -> None:
        """It happened, and will again while its cause is there."""
        self._repeated[name] = (text, self._monotonic_ms())

    def began(self, name: str, text: str) -> None:
        """It stands until it is `over`."""
        self._standing[name] = text

    def over(self, name: str) -> None:
        """It went well."""
        self._standing.pop(name, None)

    def standing(self) -> tuple[tuple[str, str], ...]:
        """Name and text of each, by name."""
        since = self._monotonic_ms() - STANDS_MS
        recent = {name: text for name, (text, at) in self._repeated.items() if at >= since}
        return tuple(sorted({**recent, **self._standing}.items()))
