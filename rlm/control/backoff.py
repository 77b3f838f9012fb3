"""Exponential back-off of failed copies with full jitter, per partition. Pure.

Full jitter (a uniform draw from zero to the ceiling) spreads the retries of a hundred partitions
that failed together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafka_formats.errors import Conflict, CorruptData, StrandlineError

SOURCE_CHANGED = "SOURCE_CHANGED"
"""`Conflict.reason` of a copy whose source was truncated, renamed or replaced while being read."""

EXPONENT_MAX = 30


class FailureKind(Enum):
    """The kinds of failures, which differ in the next attempt."""

    TRANSIENT = "transient"
    SOURCE_CHANGED = "source_changed"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class BackOffPolicy:
    """Seconds. `corrupt_s` is the slow repeat of a blocked partition, without growth."""

    base_s: float
    max_s: float
    source_changed_s: float
    corrupt_s: float


@dataclass(frozen=True, slots=True)
class BackOff:
    """A partition's failures in a row, and the time before which it is not tried again (ms since
    epoch). `since_ms` is the time of the last failure; a clock that shows an earlier time was set
    back.
    """

    failures: int = 0
    until_ms: int = 0
    kind: FailureKind = FailureKind.TRANSIENT
    text: str = ""
    since_ms: int = field(default=0, compare=False)

    def waits_at(self, now_ms: int) -> bool:
        """True while the next attempt has to wait."""
        return self.failures > 0 and self.since_ms <= now_ms < self.until_ms

    def left_s(self, now_ms: int) -> float:
        """Seconds until the next attempt; 0 if it need not wait."""
        return (self.until_ms - now_ms) / 1000 if self.waits_at(now_ms) else 0.0


NO_BACK_OFF = BackOff()


def failure_kind(error: BaseException) -> FailureKind:
    """Corrupt data is repeated slowly, a moving source quickly, all else with back-off."""
    if isinstance(error, CorruptData):
        return FailureKind.CORRUPT
    if isinstance(error, Conflict) and error.reason == SOURCE_CHANGED:
        return FailureKind.SOURCE_CHANGED
    return FailureKind.TRANSIENT


def error_kind(error: BaseException) -> str:
    """The stable word for statuses and events."""
    return error.kind if isinstance(error, StrandlineError) else "internal"


def jittered_s(policy: BackOffPolicy, failures: int, fraction: float) -> float:
    """Full jitter for the `failures`-th failure in a row (from 1); `fraction` is in [0, 1)."""
    exponent = min(max(failures - 1, 0), EXPONENT_MAX)
    ceiling_s: float = min(policy.max_s, policy.base_s * 2.0**exponent)
    return ceiling_s * fraction


def after_failure(
    previous: BackOff,
    kind: FailureKind,
    text: str,
    *,
    policy: BackOffPolicy,
    now_ms: int,
    fraction: float,
) -> BackOff:
    """The state after one more failure. A source that keeps changing backs off as well."""
    failures = previous.failures + 1
    if kind is FailureKind.CORRUPT:
        delay_s = policy.corrupt_s
    else:
        delay_s = jittered_s(policy, failures, fraction)
        if kind is FailureKind.SOURCE_CHANGED and failures == 1:
            delay_s = policy.source_changed_s
    return BackOff(failures, now_ms + round(delay_s * 1000), kind, text, since_ms=now_ms)
