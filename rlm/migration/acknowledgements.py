"""Decides what the calls of brokers' bridges prove while a switch waits for them. Pure.

A bridge asks its node each second for the phase of the move, and reports the phase by which it
acts. It acts by that phase until it gets an answer. So a call that came after the record of a
phase, with that phase seen and no change outstanding, proves that the broker changes nothing in the
topic until it gets a later phase. A broker without calls has lost its lease LEASE_S after the last
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.migration_phase import Migration

LEASE_S = 10.0
"""Time for which an answer is valid, from the bridge's call on (docs/BROKER_PROTOCOL.md)."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The last call of a broker's bridge. `seen`: number of the phase by which the bridge acts, -1
    before its first answer. `outstanding`: the number of its changes that may still reach the
    topic. `since`: metadata offset of the phase that was in force on the node when the call came.
    `plugin_version` is empty if the broker has not announced itself yet. `heard_s`: the time of the
    call.
    """

    broker_id: int
    plugin_version: str
    seen: int
    outstanding: int
    since: int
    heard_s: float

    def age_s(self, now_s: float) -> float:
        """Seconds since the call, by the node's monotonic clock."""
        return max(0.0, now_s - self.heard_s)

    def has_lease(self, now_s: float) -> bool:
        """True if the broker may still act by an answer that it got."""
        return self.age_s(now_s) < LEASE_S

    def confirms(self, migration: Migration) -> bool:
        """True if the broker acts by this phase, and no earlier change of it is outstanding."""
        return (
            self.since == migration.since and self.seen == migration.phase and self.outstanding == 0
        )
