"""Decides what the questions of brokers' bridges prove while a switch waits for them. Pure.

A bridge asks its node each second for the phase of the move, and tells which one it acts by. Until
the answer to a question it goes on to act by that one. So a question that came behind the record of
a phase, with that phase seen and no change outstanding, says that the broker changes nothing of the
topic until it hears of a later phase. A broker that is not heard at all has lost its lease
LEASE_S after its last question.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.migration_phase import Migration

LEASE_S = 10.0
"""The time that an answer holds from when it was asked for (docs/BROKER_PROTOCOL.md)."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The last question of a broker's bridge. `seen`: number of the phase that the bridge acts by,
    -1 before it heard one; `outstanding`: its changes that may still come into the topic; `since`:
    metadata offset of the phase's record that stood at the node when the question came;
    `plugin_version` is empty where the broker has not announced itself yet.
    """

    broker_id: int
    plugin_version: str
    seen: int
    outstanding: int
    since: int
    heard_s: float

    def age_s(self, now_s: float) -> float:
        """Seconds since the question, by the node's monotonic clock."""
        return max(0.0, now_s - self.heard_s)

    def has_lease(self, now_s: float) -> bool:
        """True if the broker may still act by an answer."""
        return self.age_s(now_s) < LEASE_S

    def confirms(self, migration: Migration) -> bool:
        """True if the broker has seen this phase, and no change from before it may still come."""
        return (
            self.since == migration.since and self.seen == migration.phase and self.outstanding == 0
        )
