"""The error of a store that asks for a pause: 503 SlowDown or 429 with Retry-After."""

from __future__ import annotations

from kafka_formats.errors import RetryLater

PAUSE_S_MAX = 10.0
"""The longest pause made, even if a store asks for more; the caller decides about longer ones."""


class SlowDown(RetryLater):
    """The store asks for at least `pause_s` seconds before the next attempt."""

    def __init__(self, message: str, pause_s: float) -> None:
        super().__init__(message, retry_after_ms=round(pause_s * 1_000))
        self.pause_s = pause_s

    def __reduce__(self) -> tuple[object, ...]:
        """Keep both arguments when the error is passed to a different process."""
        return SlowDown, (str(self), self.pause_s)


def told_pause_s(header: object) -> float:
    """The seconds of a Retry-After header; 0 if it is absent, a date or not valid."""
    text = str(header or "").strip()
    if not text.isascii() or not text.isdigit():
        return 0.0
    return PAUSE_S_MAX if len(text) > 6 else min(float(text), PAUSE_S_MAX)
