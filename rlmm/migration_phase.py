"""Phases of the move from Kafka's own metadata topic into the metadata log, as plain values.

The rules are in `rlmm/apply/migration.py`; docs/OPERATIONS.md tells the move itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

MIGRATION_LEVEL = 2
"""Records of the move are valid from this feature level on."""
KAFKA_CLUSTER_ID_CHARACTERS_MAX = 200


class MigrationPhase(IntEnum):
    """Where the truth about delegated topics is. Numbers are on the wire and never reused.

    NONE: no move was begun, and no record says so. KAFKA: the topic, and the brokers write to it.
    SWITCHING: the topic, frozen, which is being imported. QUORUM: the metadata log, which is also
    copied into the topic. DONE: the metadata log alone. BACK: the metadata log, frozen, until the
    topic has all of it.
    """

    NONE = -1
    KAFKA = 0
    SWITCHING = 1
    QUORUM = 2
    DONE = 3
    BACK = 4


_NONE, _KAFKA, _SWITCHING, _QUORUM, _DONE, _BACK = MigrationPhase
NEXT_PHASES: Mapping[MigrationPhase, frozenset[MigrationPhase]] = {
    _NONE: frozenset({_KAFKA}),
    _KAFKA: frozenset({_SWITCHING}),
    _SWITCHING: frozenset({_QUORUM, _KAFKA}),
    _QUORUM: frozenset({_DONE, _BACK}),
    _DONE: frozenset(),
    _BACK: frozenset({_KAFKA, _QUORUM}),
}
"""From phase to the phases that may follow it."""

RECORDED_PHASES: Mapping[int, MigrationPhase] = {
    int(phase): phase for phase in MigrationPhase if phase is not MigrationPhase.NONE
}
"""The phases that a record can name, by number."""

HELD_PHASES = frozenset({_KAFKA, _SWITCHING, _BACK})
"""Nothing of delegated topics is claimed or changed here: the truth is elsewhere, or frozen."""
FROZEN_PHASES = frozenset({_SWITCHING, _BACK})
"""Nobody changes anything: brokers acknowledge that they stopped."""
MOVING_PHASES = HELD_PHASES | {_QUORUM}
"""A move is under way: it may still go back."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The phase that stands. `since`: metadata offset of its record, `since_ms`: record time."""

    phase: MigrationPhase = MigrationPhase.NONE
    since: int = -1
    kafka_cluster_id: str = ""
    who: str = ""
    why: str = ""
    since_ms: int = -1

    @property
    def is_held(self) -> bool:
        """True while nothing of delegated topics may change by the metadata log's own records."""
        return self.phase in HELD_PHASES


NO_MIGRATION = Migration()
