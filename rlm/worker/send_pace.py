"""The time that a slow client may take over an answer. Pure.

A deadline for each chunk alone would let a client keep a stream open for days by taking a chunk
from time to time, and enough such clients would shut out all others.
"""

from __future__ import annotations


class SendPace:
    """The pace of one answer: `bytes_per_s_min` on average, and `grace_s` on top of that.

    Only the time spent waiting for the client counts, not that of the store.
    """

    def __init__(self, grace_s: float, bytes_per_s_min: int) -> None:
        self._left_s = grace_s
        self._bytes_per_s_min = bytes_per_s_min

    @property
    def left_s(self) -> float:
        """Seconds left to wait until the client takes more bytes; 0 when it is late."""
        return max(self._left_s, 0.0)

    def took(self, size_bytes: int, waited_s: float) -> None:
        """Count bytes that the client took, and the seconds waited for it."""
        self._left_s += size_bytes / self._bytes_per_s_min - waited_s
