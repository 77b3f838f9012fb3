"""Phases of the move from Kafka's own metadata topic into the metadata log, as plain values.

The rules are in `rlmm/apply/migration.py`; docs/OPERATIONS.md tells the move itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

MIGRATION_LEVEL = 2
"""Records of the move are valid from this feature level on."""
KAFKA_CLUSTER_ID_CHARACTERS_MAX = 200


class MigrationPhase(IntEnum):
    """The phases of the move: the place of the truth about delegated topics in each. Numbers are on
    the wire and never reused.

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
"""The phases that may follow each phase."""

RECORDED_PHASES: Mapping[int, MigrationPhase] = {
    int(phase): phase for phase in MigrationPhase if phase is not MigrationPhase.NONE
}
"""The phases that a record can name, by number."""

HELD_PHASES = frozenset({_KAFKA, _SWITCHING, _BACK})
"""The phases in which nothing of delegated topics is claimed or changed here: the truth is
elsewhere, or frozen.
"""
TOPIC_PHASES = frozenset({_KAFKA, _SWITCHING})
"""The phases in which the truth is in Kafka's topic: rows of delegated topics may lack what that
has.
"""
FROZEN_PHASES = frozenset({_SWITCHING, _BACK})
"""The phases in which nobody changes anything: brokers acknowledge that they stopped."""
RETURNS_TO: Mapping[MigrationPhase, MigrationPhase] = {_SWITCHING: _KAFKA, _BACK: _QUORUM}
"""The phase that an attempt began in, and falls back to."""
ENDS_IN: Mapping[MigrationPhase, MigrationPhase] = {_SWITCHING: _QUORUM, _BACK: _KAFKA}
"""The phase that an attempt leads to."""
MOVING_PHASES = HELD_PHASES | {_QUORUM}
"""The phases of a move under way, which may still go back."""


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


def why_not_next(stands: Migration, wanted: MigrationPhase, level: int) -> Iterator[str]:
    """The reasons why an admin may not begin the phase now, by what stands at feature level
    `level`; the record is judged again when it is applied.
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
