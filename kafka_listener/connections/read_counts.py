"""Counters of a read replica, for its metrics, and the log lines about its clients."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.reading.read_port import LostOffsets

log = logging.getLogger(__name__)

LINES_PER_S_MAX = 10
"""The most warnings in a second; further ones are counted but not logged."""
REPEAT_S = 60.0
"""The pause before a line is logged again: a waiting client asks twice a second."""
LINES_KEPT_MAX = 1_000
NEVER = float("-inf")
SHOWN_CHARACTERS_MAX = 100
"""The most characters shown of a client id, which may be any text."""


class BrokenOff(StrEnum):
    """The reasons for which a connection ends without its answer, or after a part of it."""

    NOT_TAKEN = "not_taken"
    """The client read its answer too slowly, or stopped reading."""
    BROKER = "broker"
    """The client's broker did not answer: the client then asks a different node, or looks the
    broker up again.
    """
    TIER = "tier"
    """Batches that the tier had found could not be sent completely."""


@dataclass(slots=True)
class ReadCounts:
    """The counters of a node's read replica. `requests` by the name of the API."""

    monotonic: Callable[[], float]
    requests: Counter[str] = field(default_factory=Counter)
    tier_bytes: int = 0
    broker_bytes: int = 0
    not_available_answers: int = 0
    lost_range_answers: int = 0
    refusals: int = 0
    broken_off: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(BrokenOff, 0)))
    _second: float = 0.0
    _lines: int = 0
    _told: dict[str, float] = field(default_factory=dict)

    def sent_from_tier(self, size_bytes: int) -> None:
        self.tier_bytes += size_bytes

    def sent_from_broker(self, size_bytes: int) -> None:
        self.broker_bytes += size_bytes

    def not_available(self, why: str) -> None:
        """Count an answer that makes a client ask again."""
        self.not_available_answers += 1
        self._warn(
            "a client was answered OFFSET_NOT_AVAILABLE or LEADER_NOT_AVAILABLE, and asks "
            "again: %s",
            why,
        )

    def lost_range(
        self, client: str, client_id: str | None, partition: TopicIdPartition, lost: LostOffsets
    ) -> None:
        """Count and log a client's request for offsets that were lost before they were copied."""
        self.lost_range_answers += 1
        self._warn(
            "client %r at %s requested the lost offsets %d to %d of %s: %s",
            (client_id or "")[:SHOWN_CHARACTERS_MAX], client, lost.start, lost.end, partition,
            lost.why,
        )  # fmt: skip

    def broke_off(self, who: str, reason: BrokenOff, why: str) -> None:
        """Count and log a connection that ends without its complete answer."""
        self.broken_off[reason] += 1
        self._warn("the connection of %s ends: %s", who, why)

    def refused(self, who: str, why: str) -> None:
        """Count and log a connection that was closed, or a request that was refused."""
        self.refusals += 1
        self._warn("%s %s", who, why)

    def _warn(self, text: str, *values: object) -> None:
        now, line = self.monotonic(), text % values
        if now - self._told.get(line, NEVER) < REPEAT_S:
            return
        if now - self._second >= 1.0:
            self._second, self._lines = now, 0
        self._lines += 1
        if self._lines > LINES_PER_S_MAX:
            return
        self._told.pop(line, None)
        self._told[line] = now
        if len(self._told) > LINES_KEPT_MAX:
            del self._told[next(iter(self._told))]
        log.warning("%s", line)
