"""A token bucket for bytes, charged as they move. Pure: the caller passes the time.

Kafka's quotas (KIP-956) record a whole segment at once and so limit bursts; here a caller gets at
most `BURST_S` of the rate at once, however long no byte moved.
"""

from __future__ import annotations

from math import isclose

BURST_S = 0.5
"""The seconds of the rate that may be saved up."""


class ByteRate:
    """A bucket. Invariant: in w seconds, callers that take up to `burst_bytes` at once take at most
    rate * (w + BURST_S) bytes.
    """

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        """The bucket starts empty, so that a new limit applies at once."""
        self._bytes_per_s = bytes_per_s
        self._tokens = 0.0
        self._at_s = now_s

    @property
    def burst_bytes(self) -> float:
        """The most bytes that are ever saved up."""
        return self._bytes_per_s * BURST_S

    def change(self, bytes_per_s: float, now_s: float) -> None:
        """Change the rate; saved bytes beyond its burst are lost."""
        self._refill(now_s)
        self._bytes_per_s = bytes_per_s
        self._tokens = min(self._tokens, self.burst_bytes)

    def wait_s(self, size: int, now_s: float) -> float:
        """Seconds until `size` bytes may be taken; more than the burst may pass a full bucket."""
        self._refill(now_s)
        missing = min(size, self.burst_bytes) - self._tokens
        if missing <= 0 or isclose(missing, 0, abs_tol=1e-6):
            return 0.0
        return missing / self._bytes_per_s

    def take(self, size: int, now_s: float) -> None:
        """Charge `size` bytes that move now, after `wait_s` allowed it."""
        self._refill(now_s)
        self._tokens -= size

    def _refill(self, now_s: float) -> None:
        gained = max(0.0, now_s - self._at_s) * self._bytes_per_s
        self._tokens = min(self._tokens + gained, self.burst_bytes)
        self._at_s = max(self._at_s, now_s)
