"""Limits on the bytes of the tier that users and client ids read, which no broker's quota counts.
Pure: the caller passes the time.

Throttling works as in Kafka's brokers: an answer is sent whole and carries the throttle time; if
the client does not wait that long by itself, its next answer is delayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlm.quota.byte_rate import ByteRate

NAMES_MAX = 10_000
"""The most users, and pairs of user and client id, that are counted; the least recently seen are
dropped first.
"""
WAIT_S_MAX = 30.0
"""The longest throttle time."""
DELAY_S_MAX = 10.0
"""The longest delay of the answer to a client that did not wait: by default Kafka's clients give up
a request after 30 s.
"""

UserAndClientId = tuple[str, str | None]
"""A user and one of its client ids; None: all its client ids together."""


@dataclass(slots=True)
class TierRates:
    """The rates of a node's clients. 0: no limit."""

    user_bytes_per_s: int = 0
    client_id_bytes_per_s: int = 0
    _rates: dict[UserAndClientId, ByteRate] = field(default_factory=dict)

    @property
    def are_unlimited(self) -> bool:
        """True if no limit is set."""
        return not self.user_bytes_per_s and not self.client_id_bytes_per_s

    def bytes_max(self, otherwise: int) -> int:
        """The size limit of one answer: at most the bytes of one second."""
        limits = [each for each in (self.user_bytes_per_s, self.client_id_bytes_per_s) if each]
        return min([otherwise, *limits])

    def wait_s(self, user: str, client_id: str, now: float) -> float:
        """Seconds until that client may read bytes of the tier again."""
        waits = (rate.wait_s(1, now) for rate in self._of(user, client_id, now))
        return min(max(waits, default=0.0), WAIT_S_MAX)

    def sent(self, user: str, client_id: str, size_bytes: int, now: float) -> float:
        """Charge the bytes of an answer; return the seconds that the client has to wait."""
        for rate in self._of(user, client_id, now):
            rate.take(size_bytes, now)
        return self.wait_s(user, client_id, now)

    def _of(self, user: str, client_id: str, now: float) -> list[ByteRate]:
        """The rates that limit this client; they become the most recently used."""
        found = []
        for who, limit in (
            ((user, None), self.user_bytes_per_s),
            ((user, client_id), self.client_id_bytes_per_s),
        ):
            if limit:
                rate = self._rates.pop(who, None) or ByteRate(limit, now)
                self._rates[who] = rate
                found.append(rate)
        while len(self._rates) > NAMES_MAX:
            self._rates.pop(next(iter(self._rates)))
        return found
