"""The phases of the move from Kafka's own metadata topic. See `rlmm/migration_phase.py`."""

from __future__ import annotations

from rlmm.apply.outcome import ACCEPTED, NO_EFFECT, Draft, Outcome, conflict, invalid
from rlmm.apply.shadow import follow_phase, why_not
from rlmm.migration_phase import (
    FROZEN_PHASES,
    KAFKA_CLUSTER_ID_CHARACTERS_MAX,
    MIGRATION_LEVEL,
    NEXT_PHASES,
    Migration,
    MigrationPhase,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import MigrationAcknowledged, MigrationPhaseChange
from rlmm.records.setting_scope import WHO_CHARACTERS_MAX
from rlmm.rows import keys, values
from rlmm.rows.migration import encode_migration, find_migration, open_imports
from rlmm.rows.queries import partitions
from rlmm.rows.reads import read_feature_level, read_partition_row


def below_level(draft: Draft, what: str) -> Outcome | None:
    """Return CONFLICT while releases may run that cannot read the records of the move."""
    level, _ = read_feature_level(draft.rows)
    if level >= MIGRATION_LEVEL:
        return None
    return conflict(
        f"{what} needs feature level {MIGRATION_LEVEL}, but {level} is finalised: upgrade all "
        f"nodes, then `strandline quorum finalize {MIGRATION_LEVEL}`"
    )


def apply_migration_phase(draft: Draft, change: MigrationPhaseChange) -> Outcome:
    """Accept a change along `NEXT_PHASES` if it names the phase that it replaces. A repetition is a
    CONFLICT: if two admins begin the same switch, only one of them may get a success.
    """
    problem = below_level(draft, "a move") or _wrong_text(change)
    if problem is not None:
        return problem
    before = find_migration(draft.rows)
    if before.since != change.replaces_offset:
        return conflict(
            f"the move is in phase {before.phase.name} since metadata offset {before.since}, not "
            f"{change.replaces_offset}: read it again, then decide"
        )
    if change.phase not in NEXT_PHASES[before.phase]:
        return conflict(
            f"the move is in phase {before.phase.name}, which {change.phase.name} does not follow"
        )
    if before.since >= 0 and before.kafka_cluster_id != change.kafka_cluster_id:
        return conflict(
            f"the move is that of the Kafka cluster {before.kafka_cluster_id}, not of "
            f"{change.kafka_cluster_id}"
        )
    problem = _not_yet(draft, before, change)
    if problem is not None:
        return problem
    after = Migration(
        change.phase, draft.offset, change.kafka_cluster_id, change.who, change.why,
        draft.record_time_ms,
    )  # fmt: skip
    draft.rows.put(keys.MIGRATION_KEY, encode_migration(after))
    follow_phase(draft, change.phase)
    return ACCEPTED


def apply_migration_acknowledged(draft: Draft, record: MigrationAcknowledged) -> Outcome:
    """Accept the acknowledgement in the frozen phase that it names."""
    problem = below_level(draft, "an acknowledgement")
    if problem is not None:
        return problem
    if record.broker_id < 0:
        return invalid(f"{record.broker_id} is not the id of a broker")
    migration = find_migration(draft.rows)
    if migration.since != record.since or migration.phase not in FROZEN_PHASES:
        return conflict(
            f"broker {record.broker_id} acknowledges the phase since metadata offset "
            f"{record.since}, but {migration.phase.name} since {migration.since} is in force"
        )
    key = keys.migration_acknowledged_key(record.broker_id)
    value = values.encode_offset(record.since)
    if draft.rows.get(key) == value:
        return NO_EFFECT
    draft.rows.put(key, value)
    return ACCEPTED


def _wrong_text(change: MigrationPhaseChange) -> Outcome | None:
    cluster_id = change.kafka_cluster_id
    if not 0 < len(cluster_id) <= KAFKA_CLUSTER_ID_CHARACTERS_MAX or not cluster_id.isprintable():
        return invalid(
            f"a Kafka cluster id has 1 to {KAFKA_CLUSTER_ID_CHARACTERS_MAX} printable characters"
        )
    if len(change.who) > WHO_CHARACTERS_MAX:
        return invalid(f"who has at most {WHO_CHARACTERS_MAX} characters")
    return None


def _not_yet(draft: Draft, before: Migration, change: MigrationPhaseChange) -> Outcome | None:
    """Return CONFLICT if the rows do not allow the phase yet."""
    if before.phase is MigrationPhase.NONE:
        return _delegated_already(draft)
    if change.phase is MigrationPhase.QUORUM and next(open_imports(draft.rows), None) is not None:
        return conflict(
            "the import of a partition has begun but not ended: import it again, then compare"
        )
    return why_not(draft, before, change.phase)


def _delegated_already(draft: Draft) -> Outcome | None:
    """Return CONFLICT if the metadata log is authoritative for a delegated partition already: in
    phase KAFKA the topic would be.
    """
    for partition in partitions(draft.rows):
        row = read_partition_row(draft.rows, partition)
        if row is not None and row.mode is Mode.DELEGATED:
            return conflict(
                f"{partition} is delegated already: its segments are in the metadata log, and not "
                "in Kafka's metadata topic. A move begins before the first delegated partition"
            )
    return None
