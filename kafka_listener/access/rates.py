"""Rates of users and client ids in bytes of the tier, which no broker's quota counts. Pure: the
caller tells the time.

As Kafka's brokers do: an answer goes out whole, says how long the client has to wait for the next,
and the next one is held back for so long if the client does not wait itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlm.quota.byte_rate import ByteRate

NAMES_MAX = 10_000
"""The most users, and pairs of user and client id, that are counted; the ones seen longest ago
go.
"""
WAIT_S_MAX = 30.0
"""The longest wait that is told: Kafka's clients give a request up after that by default."""

Who = tuple[str, str | None]
"""A user, and a client id of that user; None: all of them together."""


@dataclass(slots=True)
class TierRates:
    """The rates of a node's clients. 0: no limit."""

    user_bytes_per_s: int = 0
    client_id_bytes_per_s: int = 0
    _rates: dict[Who, ByteRate] = field(default_factory=dict)

    @property
    def are_none(self) -> bool:
        """True if nobody is limited."""
        return not self.user_bytes_per_s and not self.client_id_bytes_per_s

    def bytes_max(self, otherwise: int) -> int:
        """Bytes of one answer: those of a second at most."""
        limits = [each for each in (self.user_bytes_per_s, self.client_id_bytes_per_s) if each]
        return min([otherwise, *limits])

    def wait_s(self, user: str, client_id: str, now: float) -> float:
        """Seconds until that client may have bytes of the tier again."""
        waits = (rate.wait_s(1, now) for rate in self._of(user, client_id, now))
        return min(max(waits, default=0.0), WAIT_S_MAX)

    def sent(self, user: str, client_id: str, size_bytes: int, now: float) -> float:
        """Charge bytes of an answer; the seconds that the client has to wait."""
        for rate in self._of(user, client_id, now):
            rate.take(size_bytes, now)
        return self.wait_s(user, client_id, now)

    def _of(self, user: str, client_id: str, now: float) -> list[ByteRate]:
        """The rates that limit this client, which become the ones seen last."""
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
