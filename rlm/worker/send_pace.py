"""How long a client that takes an answer slowly is waited for. Pure.

A deadline for each chunk alone would let a client keep a stream open for days by taking a chunk
now and then, and as many of them as there may be streams would keep everybody else out.
"""

from __future__ import annotations


class SendPace:
    """Of one answer: `bytes_per_s_min` on average, and `grace_s` on top of that.

    Only time in which the client was waited for counts, not what the store takes.
    """

    def __init__(self, grace_s: float, bytes_per_s_min: int) -> None:
        self._left_s = grace_s
        self._bytes_per_s_min = bytes_per_s_min

    @property
    def left_s(self) -> float:
        """How much longer the client may be waited for before it takes more; 0 when it is late."""
        return max(self._left_s, 0.0)

    def took(self, size_bytes: int, waited_s: float) -> None:
        """So many bytes went after so long a wait."""
        self._left_s += size_bytes / self._bytes_per_s_min - waited_s
