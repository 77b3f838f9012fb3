"""Counts of a replica's events: KRaft's raft-metrics and ours.

It runs on the path of every commit, so it counts in plain lists and integers (measured: 0.3 to 0.7
microseconds a commit); a scrape turns them into a metrics library's form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rlmm.raft.actions import Role

LATENCY_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
PENDING_MAX: Final = 100_000
"""Appends whose commit is timed at once; further ones are counted only."""

_LEADERLESS: Final = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})
_LED: Final = frozenset({Role.LEADER, Role.FOLLOWER})


class Histogram:
    """Counts by upper bound, as Prometheus has them; `counts` has one more for the rest."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class QuorumStats:
    """The observer of a node, with Kafka's names where Kafka has the metric.

    `commit_latency` is that of a whole append (Kafka divides it by its records), from the leader's
    append to the high watermark behind it. `election_latency` runs from standing to a known leader.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds of any monotonic clock, called from any thread."""
        self.now = now
        self.commit_latency = Histogram(LATENCY_SECONDS)
        self.election_latency = Histogram(LATENCY_SECONDS)
        self.fsync_latency = Histogram(LATENCY_SECONDS)
        self.append_records = 0
        self.fetch_records = 0
        self.truncations = 0
        self._pending: deque[tuple[int, float]] = deque()
        self._standing_since: float | None = None

    def appended(self, end_offset: int, records: int, *, leading: bool) -> None:
        if leading:
            self.append_records += records
            if len(self._pending) < PENDING_MAX:
                self._pending.append((end_offset, self.now()))
        else:
            self.fetch_records += records

    def high_watermark_moved(self, high_watermark: int) -> None:
        pending = self._pending
        if not pending or pending[0][0] > high_watermark:
            return
        now, observe = self.now(), self.commit_latency.observe
        while pending and pending[0][0] <= high_watermark:
            observe(now - pending.popleft()[1])

    def role_changed(self, role: Role) -> None:
        if role is not Role.LEADER:
            self._pending.clear()  # another leader may commit them, or nobody
        if role in _LEADERLESS and self._standing_since is None:
            self._standing_since = self.now()
        elif role in _LED and self._standing_since is not None:
            self.election_latency.observe(self.now() - self._standing_since)
            self._standing_since = None

    def synced(self, seconds: float) -> None:
        self.fsync_latency.observe(seconds)

    def truncated(self) -> None:
        self.truncations += 1


@dataclass(frozen=True, slots=True)
class DriverTold:
    """Callbacks on the driver's loop: `on_advance` when more is committed or the log was
    replaced, `on_role` after any change of role or voters, `on_failure` once.
    """

    on_advance: Callable[[], None]
    on_role: Callable[[], None]
    on_failure: Callable[[str], None]
    observer: QuorumStats
