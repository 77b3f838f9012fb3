"""Phases of the move from Kafka's own metadata topic into the metadata log, as plain values.

The rules are in `rlmm/apply/migration.py`; docs/OPERATIONS.md describes the move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

MIGRATION_LEVEL = 2
"""The feature level from which on records of the move are valid."""
KAFKA_CLUSTER_ID_CHARACTERS_MAX = 200


class MigrationPhase(IntEnum):
    """The phases of the move, and where the metadata of delegated topics is authoritative in each.
    The numbers are in the log and never reused.

    NONE: no move was begun, and no record names this phase. KAFKA: the topic, and brokers write to
    it. SWITCHING: the topic, frozen, which is being imported. QUORUM: the metadata log, which is
    also copied into the topic. DONE: the metadata log alone. BACK: the metadata log, frozen, until
    the topic has all of it.
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
"""The phases that may follow each phase."""

RECORDED_PHASES: Mapping[int, MigrationPhase] = {
    int(phase): phase for phase in MigrationPhase if phase is not MigrationPhase.NONE
}
"""The phases that a record can name, by number."""

HELD_PHASES = frozenset({_KAFKA, _SWITCHING, _BACK})
"""The phases in which no delegated topic is claimed or changed here: the metadata is authoritative
elsewhere, or frozen.
"""
TOPIC_PHASES = frozenset({_KAFKA, _SWITCHING})
"""The phases in which Kafka's topic is authoritative: rows of delegated topics may lack what that
has.
"""
FROZEN_PHASES = frozenset({_SWITCHING, _BACK})
"""The phases in which no broker changes anything: brokers acknowledge that they stopped."""
RETURNS_TO: Mapping[MigrationPhase, MigrationPhase] = {_SWITCHING: _KAFKA, _BACK: _QUORUM}
"""The phase in which an attempt began, to which a failed one returns."""
ENDS_IN: Mapping[MigrationPhase, MigrationPhase] = {_SWITCHING: _QUORUM, _BACK: _KAFKA}
"""The phase to which an attempt leads."""
MOVING_PHASES = HELD_PHASES | {_QUORUM}
"""The phases of a move under way, which may still be reversed."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The phase in force. `since`: metadata offset of its record, `since_ms`: its record time."""

    phase: MigrationPhase = MigrationPhase.NONE
    since: int = -1
    kafka_cluster_id: str = ""
    who: str = ""
    why: str = ""
    since_ms: int = -1

    @property
    def is_held(self) -> bool:
        """True while no record of the metadata log itself may change a delegated topic."""
        return self.phase in HELD_PHASES


NO_MIGRATION = Migration()


def why_not_next(stands: Migration, wanted: MigrationPhase, level: int) -> Iterator[str]:
    """The reasons why an admin may not begin the phase now, from the phase in force and the feature
    level; applying the record checks them again.
    """
    if level < MIGRATION_LEVEL:
        yield (
            f"a move needs feature level {MIGRATION_LEVEL}, and {level} is finalised: upgrade all "
            f"nodes, then `strandline quorum finalize {MIGRATION_LEVEL}`"
        )
    begun_by_admins = {
        before: after - {RETURNS_TO.get(before), ENDS_IN.get(before)}
        for before, after in NEXT_PHASES.items()
    }
    if wanted not in begun_by_admins[stands.phase]:
        yield f"the move is in phase {stands.phase.name}, which {wanted.name} does not follow"
