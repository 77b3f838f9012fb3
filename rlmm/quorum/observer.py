"""Counts of a replica's events: KRaft's raft-metrics and our own.

It runs on the path of every commit, so it counts in plain lists and integers (measured: 0.3 to 0.7
microseconds per commit); a scrape converts them to a metrics library's form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rlmm.histogram import Histogram, latencies
from rlmm.raft.actions import Role

PENDING_MAX: Final = 100_000
"""The most appends whose commit is timed at once; further ones are only counted."""

_LEADERLESS: Final = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})
_LED: Final = frozenset({Role.LEADER, Role.FOLLOWER})


class QuorumStats:
    """The observer of a node, with Kafka's names where Kafka has the metric.

    `commit_latency` is that of a whole append (Kafka divides it by its records), from the leader's
    append until the high watermark passes it. `election_latency` is the time from candidacy to a
    known leader. `propagation` is that of single appends, by voter: from the leader's append to
    that voter's fetch from after it, which shows that they are durable there; one append at a time
    is timed.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds of any monotonic clock, called from any thread."""
        self.now = now
        self.commit_latency = latencies()
        self.election_latency = latencies()
        self.fsync_latency = latencies()
        self.propagation: dict[int, Histogram] = {}
        self.append_records = 0
        self.fetch_records = 0
        self.truncations = 0
        self._pending: deque[tuple[int, float]] = deque()
        self._standing_since: float | None = None
        self._followed: dict[int, tuple[int, float] | None] = {}
        self._advanced_s: float | None = None

    def appended(self, end_offset: int, records: int, *, leading: bool) -> None:
        if not leading:
            self.fetch_records += records
            return
        self.append_records += records
        now = self.now()
        if len(self._pending) < PENDING_MAX:
            self._pending.append((end_offset, now))
        for node_id, followed in self._followed.items():
            if followed is None:
                self._followed[node_id] = (end_offset, now)

    def acknowledged(self, node_id: int, end_offset: int) -> None:
        """Record that a voter fetches from this leader: it has everything below `end_offset`."""
        followed = self._followed.setdefault(node_id, None)
        if followed is not None and followed[0] <= end_offset:
            self._followed[node_id] = None
            histogram = self.propagation.get(node_id)
            if histogram is None:
                histogram = self.propagation[node_id] = latencies()
            histogram.observe(self.now() - followed[1])

    def take_advanced_s(self) -> float | None:
        """Take the time when commits were first reported since the last call; None if none were."""
        advanced_s, self._advanced_s = self._advanced_s, None
        return advanced_s

    def high_watermark_moved(self, high_watermark: int) -> None:
        if self._advanced_s is None:
            self._advanced_s = self.now()
        pending = self._pending
        if not pending or pending[0][0] > high_watermark:
            return
        now, observe = self.now(), self.commit_latency.observe
        while pending and pending[0][0] <= high_watermark:
            observe(now - pending.popleft()[1])

    def role_changed(self, role: Role) -> None:
        if role is not Role.LEADER:
            self._pending.clear()  # a different leader may commit them, or none
            self._followed.clear()
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
class DriverCallbacks:
    """Callbacks on the driver's loop: `on_advance` when more is committed or the log was replaced,
    `on_role` after any change of role or voters, `on_failure` once.
    """

    on_advance: Callable[[], None]
    on_role: Callable[[], None]
    on_failure: Callable[[str], None]
    observer: QuorumStats
