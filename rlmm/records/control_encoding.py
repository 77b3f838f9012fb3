"""Encodes and decodes Strandline's own metadata records.

A value is an int16 version, the fields of `_LAYOUTS` in their order, and tagged fields, all in
Kafka's flexible encodings (`kafka_formats/primitives.py`). Readers accept version 0 only. New
fields are tagged fields, which a node that does not know them keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.primitives import Reader, Writer
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.metadata_shadow import TopicPosition
from rlmm.migration_phase import RECORDED_PHASES, MigrationPhase
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records import control_records as control
from rlmm.records.node_facts import fact_tags, facts_in
from rlmm.records.record_fields import (
    Tags,
    int64_bytes,
    read_epochs,
    read_incarnation,
    read_mode,
    read_partition,
    value_of,
    write_epochs,
    write_incarnation,
    write_partition,
)
from rlmm.records.setting_scope import ScopeKind, SettingScope

VERSION = 0
_TAG_POLICY_OFFSET = 0  # of LOG_START
_TAG_MARK = 1  # of LOG_START: offset of the mark, and the ms for which it was seen
_TAG_CUT_AT = 0  # of CLAIM_RESET
_TAG_TOPIC_ID = 0  # of TOPIC_POLICY
_TAG_FOLLOW_DELETE_RECORDS = 1  # of TOPIC_POLICY, without a value: present or not


def _write_mode(writer: Writer, mode: Mode) -> None:
    writer.int8(mode)


def _read_bare_partition(reader: Reader) -> TopicIdPartition:
    partition, tags = read_partition(reader)
    if tags:
        raise reader.corrupt("the partition of a control record has tagged fields")
    return partition


def _write_why(writer: Writer, why: str) -> None:
    writer.string(why[: control.WHY_CHARACTERS_MAX])


def _read_why(reader: Reader) -> str:
    why = reader.string()
    if len(why) > control.WHY_CHARACTERS_MAX:
        raise reader.corrupt(
            f"the reason has {len(why)} characters, at most {control.WHY_CHARACTERS_MAX}"
        )
    return why


def _write_policy(writer: Writer, policy: TopicPolicy) -> None:
    writer.int64(policy.retention_ms)
    writer.int64(policy.retention_bytes)
    writer.boolean(policy.copy_paused)
    writer.boolean(policy.delete_paused)


def _read_policy(reader: Reader) -> TopicPolicy:
    return TopicPolicy(reader.int64(), reader.int64(), reader.boolean(), reader.boolean())


def _write_scope(writer: Writer, scope: SettingScope) -> None:
    writer.int8(scope.kind)
    writer.string(scope.name)


def _read_scope(reader: Reader) -> SettingScope:
    number = reader.int8()
    try:
        return SettingScope(ScopeKind(number), reader.string())
    except ValueError:
        raise reader.corrupt(f"unknown scope {number} of a setting") from None


def _write_phase(writer: Writer, phase: MigrationPhase) -> None:
    writer.int8(phase)


def _read_phase(reader: Reader) -> MigrationPhase:
    phase = RECORDED_PHASES.get(number := reader.int8())
    if phase is None:
        raise reader.corrupt(f"unknown phase {number} of a move")
    return phase


def _write_rows(writer: Writer, rows: tuple[bytes, ...]) -> None:
    writer.array_length(len(rows))
    for row in rows:
        writer.bytes_(row)


def _read_rows(reader: Reader) -> tuple[bytes, ...]:
    return tuple(reader.bytes_() for _ in range(reader.array_length()))


def _write_positions(writer: Writer, positions: tuple[TopicPosition, ...]) -> None:
    writer.array_length(len(positions))
    for each in positions:
        writer.int32(each.partition)
        writer.int64(each.next_offset)
        writer.int64(each.last)


def _read_positions(reader: Reader) -> tuple[TopicPosition, ...]:
    return tuple(
        TopicPosition(reader.int32(), reader.int64(), reader.int64())
        for _ in range(reader.array_length())
    )


def _write_value(writer: Writer, value: str | None) -> None:
    writer.string(value or "")


def _read_value(reader: Reader) -> str | None:
    return reader.string() or None


_Field = tuple[Callable[[Writer, Any], None], Callable[[Reader], Any]]
_INT16: _Field = (Writer.int16, Reader.int16)
_INT32: _Field = (Writer.int32, Reader.int32)
_INT64: _Field = (Writer.int64, Reader.int64)
_FLAG: _Field = (Writer.boolean, Reader.boolean)
_TEXT: _Field = (Writer.string, Reader.string)
_UUID: _Field = (Writer.uuid, Reader.uuid)
_WHY: _Field = (_write_why, _read_why)
_MODE: _Field = (_write_mode, read_mode)
_EPOCHS: _Field = (write_epochs, read_epochs)
_NODE: _Field = (write_incarnation, read_incarnation)
_PARTITION: _Field = (write_partition, _read_bare_partition)
_POLICY: _Field = (_write_policy, _read_policy)
_SCOPE: _Field = (_write_scope, _read_scope)
_VALUE: _Field = (_write_value, _read_value)
_PHASE: _Field = (_write_phase, _read_phase)
_ROWS: _Field = (_write_rows, _read_rows)
_POSITIONS: _Field = (_write_positions, _read_positions)
_LOST = {"partition": _PARTITION, "token": _INT64, "start": _INT64, "end": _INT64, "why": _WHY}
_BY_OFFSET = {"partition": _PARTITION, "replaces_offset": _INT64}

_Type = control.ControlRecordType
_LAYOUTS: Mapping[
    control.ControlRecordType, tuple[type[control.ControlRecord], Mapping[str, _Field]]
] = {
    _Type.PARTITION_CLAIM: (
        control.PartitionClaim,
        {
            "partition": _PARTITION,
            "mode": _MODE,
            "leader_epoch": _INT32,
            "incarnation": _NODE,
            "claim_number": _INT64,
            "leader_epochs": _EPOCHS,
            "local_log_start_offset": _INT64,
        },
    ),
    _Type.LOG_START: (
        control.LogStart,
        {"partition": _PARTITION, "token": _INT64, "offset_epoch": _INT32, "offset": _INT64},
    ),
    _Type.LOST_RANGE: (control.LostRange, _LOST),
    _Type.PARTITION_MODE: (
        control.PartitionModeChange,
        {"partition": _PARTITION, "mode": _MODE, "replaces_offset": _INT64},
    ),
    _Type.TOPIC_POLICY: (
        control.TopicPolicyChange,
        {"topic": _TEXT, "policy": _POLICY, "replaces_offset": _INT64},
    ),
    _Type.CLAIM_RESET: (control.ClaimReset, _BY_OFFSET),
    _Type.PARTITION_DELETE_UNDO: (control.PartitionDeleteUndo, _BY_OFFSET),
    _Type.FEATURE_LEVEL: (control.FeatureLevel, {"level": _INT16, "replaces_offset": _INT64}),
    _Type.PARTITION_ADOPTED: (control.PartitionAdopted, {"partition": _PARTITION, "token": _INT64}),
    _Type.SEGMENT_MISSING: (
        control.SegmentMissing,
        {"partition": _PARTITION, "segment": _UUID, "finished_at": _INT64},
    ),
    _Type.RECONCILED: (control.Reconciled, {"restart_offset": _INT64}),
    _Type.GAPS_ALLOWED: (control.GapsAllowed, {"partition": _PARTITION, "why": _WHY}),
    _Type.OFFSETS_SKIPPED: (control.OffsetsSkipped, _LOST),
    _Type.NODE_REGISTRATION: (control.NodeRegistration, {"incarnation": _NODE}),
    _Type.NODE_CONTESTED: (
        control.NodeContested,
        {"incarnation": _NODE, "registered_offset": _INT64},
    ),
    _Type.TIME_PASSED: (control.TimePassed, {"since_offset": _INT64, "passed_ms": _INT64}),
    _Type.NODE_SILENCE: (
        control.NodeSilence,
        {
            "node_id": _INT32,
            "registered_offset": _INT64,
            "leader_epoch": _INT32,
            "fenced": _FLAG,
        },
    ),
    _Type.NODE_STOPPED: (
        control.NodeStopped,
        {"incarnation": _NODE, "registered_offset": _INT64},
    ),
    _Type.NODE_REMOVED: (
        control.NodeRemoved,
        {"node_id": _INT32, "registered_offset": _INT64},
    ),
    _Type.CLUSTER_SETTING: (
        control.ClusterSetting,
        {
            "scope": _SCOPE,
            "key": _TEXT,
            "value": _VALUE,
            "who": _TEXT,
            "why": _WHY,
            "replaces_offset": _INT64,
        },
    ),
    _Type.EXPIRY_MARK: (
        control.ExpiryMark,
        {
            "partition": _PARTITION,
            "token": _INT64,
            "offset_epoch": _INT32,
            "offset": _INT64,
            "policy_offset": _INT64,
            "trash_ms": _INT64,
            "segments": _INT64,
            "size_bytes": _INT64,
            "joins": _FLAG,
            "why": _WHY,
        },
    ),
    _Type.EXPIRY_TAKEN_BACK: (
        control.ExpiryTakenBack,
        {
            "partition": _PARTITION,
            "replaces_offset": _INT64,
            "hold": _FLAG,
            "who": _TEXT,
            "why": _WHY,
        },
    ),
    _Type.MIGRATION_PHASE: (
        control.MigrationPhaseChange,
        {
            "phase": _PHASE,
            "replaces_offset": _INT64,
            "kafka_cluster_id": _TEXT,
            "who": _TEXT,
            "why": _WHY,
        },
    ),
    _Type.SEGMENTS_IMPORTED: (
        control.SegmentsImported,
        {
            "partition": _PARTITION,
            "since": _INT64,
            "at": _INT64,
            "last": _FLAG,
            "rows": _ROWS,
            "lineage": _EPOCHS,
            "highest": _EPOCHS,
            "log_start_offset": _INT64,
        },
    ),
    _Type.MIGRATION_ACKNOWLEDGED: (
        control.MigrationAcknowledged,
        {"broker_id": _INT32, "since": _INT64},
    ),
    _Type.SHADOW_WRITTEN: (
        control.ShadowWritten,
        {
            "begun": _INT64,
            "topic_id": _UUID,
            "partitions": _INT32,
            "written_up_to": _INT64,
            "positions": _POSITIONS,
            "incomplete": _WHY,
            "foreign": _WHY,
        },
    ),
}
_TYPES = {record: type_ for type_, (record, _) in _LAYOUTS.items()}


def encode_control(record: control.ControlRecord) -> tuple[control.ControlRecordType, bytes]:
    """(type id, value). InvalidRequest: a number does not fit its field."""
    type_ = _TYPES[type(record)]
    writer = Writer()
    writer.int16(VERSION)
    for name, (write, _) in _LAYOUTS[type_][1].items():
        write(writer, getattr(record, name))
    writer.tagged_fields((*_known_tags(record), *record.unknown_tags))
    return type_, writer.done()


def _known_tags(record: control.ControlRecord) -> Tags:
    if isinstance(record, control.LogStart):
        return _log_start_tags(record)
    if isinstance(record, control.ClaimReset) and record.cut_at is not None:
        return ((_TAG_CUT_AT, int64_bytes(record.cut_at)),)
    if isinstance(record, control.NodeRegistration):
        return fact_tags(record.facts)
    if not isinstance(record, control.TopicPolicyChange):
        return ()
    policy, tags = record.policy, []
    if policy.topic_id != ZERO_UUID:
        tags.append((_TAG_TOPIC_ID, bytes(policy.topic_id)))
    if policy.follow_delete_records:
        tags.append((_TAG_FOLLOW_DELETE_RECORDS, b""))
    return tuple(tags)


def _log_start_tags(record: control.LogStart) -> Tags:
    tags = []
    if record.policy_offset is not None:
        tags.append((_TAG_POLICY_OFFSET, int64_bytes(record.policy_offset)))
    if record.mark_offset is not None:
        tags.append((_TAG_MARK, int64_bytes(record.mark_offset) + int64_bytes(record.seen_ms)))
    return tuple(tags)


def decode_control(type_: int, value: bytes, *, source: str) -> control.ControlRecord:
    """Decode the record. CorruptData: unknown type or version, or malformed."""
    reader = Reader(value, source)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"control record {type_} has version {version}, not {VERSION}")
    if type_ not in _TYPES.values():
        raise reader.corrupt(f"{type_} is not a control record type of the metadata log")
    record_type, fields = _LAYOUTS[control.ControlRecordType(type_)]
    values: Any = {name: read(reader) for name, (_, read) in fields.items()}
    record = record_type(**values, unknown_tags=reader.tagged_fields())
    reader.expect_end()
    return _with_known_tags(record, reader)


def _with_known_tags(record: control.ControlRecord, reader: Reader) -> control.ControlRecord:
    """The record, with the tagged fields that this program knows moved to its own fields."""
    if isinstance(record, control.LogStart):
        return _with_log_start_tags(record)
    if isinstance(record, control.ClaimReset):
        cut, unknown = _taken(record.unknown_tags, _TAG_CUT_AT)
        if cut is not None:
            cut_at = value_of(cut, "cut of a claim reset", Reader.int64)
            return replace(record, cut_at=cut_at, unknown_tags=unknown)
    if isinstance(record, control.NodeRegistration):
        facts, unknown = facts_in(record.unknown_tags)
        return replace(record, facts=facts, unknown_tags=unknown)
    if isinstance(record, control.TopicPolicyChange):
        given, unknown = _taken(record.unknown_tags, _TAG_TOPIC_ID)
        follows, unknown = _taken(unknown, _TAG_FOLLOW_DELETE_RECORDS)
        if follows:
            raise reader.corrupt("follow_delete_records of a topic policy has a value")
        id_ = ZERO_UUID
        if given is not None:
            id_ = value_of(given, "topic id of a topic policy", Reader.uuid)
        policy = replace(record.policy, topic_id=id_, follow_delete_records=follows is not None)
        return replace(record, policy=policy, unknown_tags=unknown)
    return record


def _with_log_start_tags(record: control.LogStart) -> control.LogStart:
    offset, unknown = _taken(record.unknown_tags, _TAG_POLICY_OFFSET)
    mark, unknown = _taken(unknown, _TAG_MARK)
    if offset is not None:
        policy_offset = value_of(offset, "policy offset of a log start", Reader.int64)
        record = replace(record, policy_offset=policy_offset, unknown_tags=unknown)
    if mark is not None:
        mark_offset, seen_ms = value_of(mark, "mark of a log start", _read_two)
        record = replace(record, mark_offset=mark_offset, seen_ms=seen_ms, unknown_tags=unknown)
    return record


def _read_two(reader: Reader) -> tuple[int, int]:
    return reader.int64(), reader.int64()


def _taken(tags: Tags, number: int) -> tuple[bytes | None, Tags]:
    """(value of the tagged field with this number, the other fields)."""
    return dict(tags).get(number), tuple(each for each in tags if each[0] != number)
