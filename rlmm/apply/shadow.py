"""The shadow of the metadata log in Kafka's own metadata topic: its outbox, and reports about it.

Each accepted change of a delegated partition adds a row with the record as Kafka's own manager
would write it, in the same step as the change itself; so no change is missed or doubled when the
leader changes. A report removes the rows that are in the topic.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.outcome import ACCEPTED, NO_EFFECT, Draft, Outcome, conflict, invalid
from rlmm.metadata_shadow import OUTBOX_ROWS_MAX, REMOVED_MAX, TOPIC_PARTITIONS_MAX, Shadow
from rlmm.migration_phase import Migration, MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import ShadowWritten
from rlmm.records.kafkas_records import as_kafka_writes
from rlmm.records.segment_records import SegmentRecord, encode_segment_record
from rlmm.rows import keys
from rlmm.rows.migration import find_migration
from rlmm.rows.reads import read_partition_row, read_segment
from rlmm.rows.rows import RowReader
from rlmm.rows.shadow import (
    encode_outbox,
    encode_position,
    encode_shadow,
    find_position,
    find_shadow,
    is_kept_up,
    topic_positions,
)
from rlmm.segment import RemoteLogSegmentMetadataUpdate

_REPORTED_PHASES = frozenset(
    {
        MigrationPhase.SWITCHING,
        MigrationPhase.QUORUM,
        MigrationPhase.BACK,
        MigrationPhase.DONE,
    }
)
_NEVER = Shadow()


def is_shadowed(rows: RowReader, partition: TopicIdPartition) -> bool:
    """True if accepted changes of the partition have to be written to the topic."""
    if not is_kept_up(rows):
        return False
    row = read_partition_row(rows, partition)
    return row is not None and row.mode is Mode.DELEGATED


def put_in_outbox(draft: Draft, record: SegmentRecord) -> None:
    """Keep an accepted change of a delegated partition until it is in the topic. With more than
    `OUTBOX_ROWS_MAX` changes the shadow is given up: the log goes on, and the move can't go back
    any more.
    """
    shadow = find_shadow(draft.rows)
    if shadow is None or shadow.incomplete:
        return
    if shadow.rows >= OUTBOX_ROWS_MAX:
        why = (
            f"{shadow.rows} changes waited for Kafka's metadata topic at metadata offset "
            f"{draft.offset}, which is the most that are kept"
        )
        _put(draft, replace(shadow, incomplete=why))
        return
    custom_metadata = None
    if isinstance(record, RemoteLogSegmentMetadataUpdate):
        # Kafka's cache takes the custom metadata of each update; ours keeps the stored one.
        row = read_segment(draft.rows, record.segment_id.id)
        custom_metadata = record.custom_metadata if row is None else row.custom_metadata
    value = encode_segment_record(as_kafka_writes(record, custom_metadata))
    draft.rows.put(keys.shadow_outbox_key(draft.offset), encode_outbox(draft.timestamp_ms, value))
    _put(draft, replace(shadow, rows=shadow.rows + 1))


def _put(draft: Draft, shadow: Shadow) -> None:
    draft.rows.put_decoded(keys.SHADOW_KEY, shadow, encode_shadow)


def apply_shadow_written(draft: Draft, record: ShadowWritten) -> Outcome:
    """Accept a report from any node: it states what its writer saw, and positions only grow."""
    problem = _impossible(draft, record)
    if problem is not None:
        return problem
    phase = find_migration(draft.rows).phase
    shadow = find_shadow(draft.rows)
    if shadow is None or phase not in _REPORTED_PHASES:
        return conflict(f"nothing is written to the topic in phase {phase.name}")
    if shadow.begun != record.begun:
        return conflict(
            f"this shadow began at metadata offset {shadow.begun}, not at {record.begun}: read its "
            "state again"
        )
    known = (shadow.topic_id, shadow.partitions)
    if shadow.topic_id == ZERO_UUID:
        shadow = replace(shadow, topic_id=record.topic_id, partitions=record.partitions)
    elif known != (record.topic_id, record.partitions) and not record.incomplete:
        return conflict(
            f"the shadow is in the topic with id {shadow.topic_id} and {shadow.partitions} "
            f"partitions, not in {record.topic_id} with {record.partitions}"
        )
    before = find_shadow(draft.rows)
    moved = _move_positions(draft, record)
    after = _with_rows_removed(draft, shadow, record.written_up_to)
    after = replace(
        after,
        incomplete=after.incomplete or record.incomplete,
        foreign=after.foreign or record.foreign,
    )
    if not moved and after == before:
        return NO_EFFECT
    if phase is MigrationPhase.DONE and not after.rows:
        draft.rows.delete(keys.SHADOW_KEY)
    else:
        _put(draft, after)
    return ACCEPTED


def _impossible(draft: Draft, record: ShadowWritten) -> Outcome | None:
    if not 0 < record.partitions <= TOPIC_PARTITIONS_MAX:
        return invalid(f"a topic has 1 to {TOPIC_PARTITIONS_MAX} partitions")
    if not -1 <= record.written_up_to < draft.offset:
        return invalid(f"{record.written_up_to} is not the metadata offset of an earlier record")
    before = -1
    for each in record.positions:
        if not before < each.partition < record.partitions:
            return invalid("positions ascend, and are those of the topic's partitions")
        if each.next_offset < 0 or not -1 <= each.last < draft.offset:
            return invalid(f"{each.next_offset} with {each.last} is not a position")
        before = each.partition
    return None


def _move_positions(draft: Draft, record: ShadowWritten) -> bool:
    moved = False
    for each in record.positions:
        known = find_position(draft.rows, each.partition)
        if known is None or known.next_offset < each.next_offset:
            draft.rows.put(keys.shadow_position_key(each.partition), encode_position(each))
            moved = True
    return moved


def _with_rows_removed(draft: Draft, shadow: Shadow, up_to: int) -> Shadow:
    """Remove rows up to that metadata offset, `REMOVED_MAX` at most; the next report continues."""
    if up_to <= shadow.written_up_to:
        return shadow
    prefix = keys.SHADOW_OUTBOX_PREFIX
    found = draft.rows.scan(prefix, keys.shadow_outbox_key(up_to + 1))
    removed = [key for key, _ in islice(found, REMOVED_MAX)]
    for key in removed:
        draft.rows.delete(key)
    if len(removed) == REMOVED_MAX:
        up_to = keys.offset_of_shadow_outbox_key(removed[-1])
    return replace(shadow, written_up_to=up_to, rows=shadow.rows - len(removed))


def why_not(draft: Draft, before: Migration, phase: MigrationPhase) -> Outcome | None:
    """Return CONFLICT for a phase that the shadow does not allow: the move can't go back to a topic
    that lacks changes.
    """
    if phase is MigrationPhase.BACK or (before.phase, phase) == _HANDED_BACK:
        shadow = find_shadow(draft.rows) or _NEVER
        if shadow.incomplete:
            return conflict(
                "Kafka's metadata topic lacks changes, so the move can't go back to it: "
                + shadow.incomplete
            )
        if phase is MigrationPhase.KAFKA and shadow.rows:
            return conflict(
                f"{shadow.rows} changes are not in Kafka's metadata topic yet: wait for them"
            )
    return None


_HANDED_BACK = (MigrationPhase.BACK, MigrationPhase.KAFKA)


def follow_phase(draft: Draft, phase: MigrationPhase) -> None:
    """Begin a shadow with a switch, and forget it at the end of the move."""
    if phase is MigrationPhase.SWITCHING:
        _forget_positions(draft)
        _put(draft, Shadow(begun=draft.offset))
    elif phase in (MigrationPhase.KAFKA, MigrationPhase.DONE):
        _forget_positions(draft)
        shadow = find_shadow(draft.rows)
        if shadow is not None and not shadow.rows:
            draft.rows.delete(keys.SHADOW_KEY)


def _forget_positions(draft: Draft) -> None:
    for each in list(topic_positions(draft.rows)):
        draft.rows.delete(keys.shadow_position_key(each.partition))
