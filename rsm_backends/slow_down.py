"""A store that asks for a pause: 503 SlowDown or 429 with Retry-After."""

from __future__ import annotations

from kafka_formats.errors import RetryLater

PAUSE_S_MAX = 10.0
"""However long a store says: more is the caller's to decide."""


class SlowDown(RetryLater):
    """`pause_s` before the next attempt, at least."""

    def __init__(self, message: str, pause_s: float) -> None:
        super().__init__(message, retry_after_ms=round(pause_s * 1_000))
        self.pause_s = pause_s

    def __reduce__(self) -> tuple[object, ...]:
        """Keep both arguments when the error crosses a process border."""
        return SlowDown, (str(self), self.pause_s)


def told_pause_s(header: object) -> float:
    """What a Retry-After header says, in whole seconds; 0 for none, a date or nonsense."""
    text = str(header or "").strip()
    if not text.isascii() or not text.isdigit():
        return 0.0
    return PAUSE_S_MAX if len(text) > 6 else min(float(text), PAUSE_S_MAX)
