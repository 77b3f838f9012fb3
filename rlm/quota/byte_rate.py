"""A token bucket for bytes, charged as they move. Pure: whoever asks says what time it is.

Kafka's quotas (KIP-956) record a whole segment at once, so what they limit comes in bursts; here
nobody gets more than `BURST_S` of the rate at once, however long nothing moved.
"""

from __future__ import annotations

from math import isclose

BURST_S = 0.5
"""How much of the rate may be saved up, in seconds."""


class ByteRate:
    """Invariant: in any span of w seconds at most rate * (w + BURST_S) bytes are taken, by takers
    that each want no more than `burst_bytes`.
    """

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        """Begins empty: a limit that is set now is held from now on."""
        self._bytes_per_s = bytes_per_s
        self._tokens = 0.0
        self._at_s = now_s

    @property
    def burst_bytes(self) -> float:
        """The most that is ever saved up."""
        return self._bytes_per_s * BURST_S

    def change(self, bytes_per_s: float, now_s: float) -> None:
        """Another rate from now on; what is saved up beyond its burst is lost."""
        self._refill(now_s)
        self._bytes_per_s = bytes_per_s
        self._tokens = min(self._tokens, self.burst_bytes)

    def wait_s(self, size: int, now_s: float) -> float:
        """How long until `size` bytes may be taken; 0 when they may be now.

        What is larger than the burst is let through on a full bucket, and paid for afterwards.
        """
        self._refill(now_s)
        missing = min(size, self.burst_bytes) - self._tokens
        if missing <= 0 or isclose(missing, 0, abs_tol=1e-6):
            return 0.0
        return missing / self._bytes_per_s

    def take(self, size: int, now_s: float) -> None:
        """`size` bytes move now: `wait_s` said that they may."""
        self._refill(now_s)
        self._tokens -= size

    def _refill(self, now_s: float) -> None:
        gained = max(0.0, now_s - self._at_s) * self._bytes_per_s
        self._tokens = min(self._tokens + gained, self.burst_bytes)
        self._at_s = max(self._at_s, now_s)
