"""The bytes of Strandline's own metadata records, both ways.

Every value is `int16 version`, the fields, tagged fields (all encodings are Kafka's flexible ones,
`kafka_formats/primitives.py`). A reader takes version 0 only; additions are tagged fields, which a
node that does not know them keeps.
"""

from __future__ import annotations

from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.primitives import Reader, Writer
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import (
    WHY_CHARACTERS_MAX,
    ClaimReset,
    ControlRecord,
    ControlRecordType,
    FeatureLevel,
    GapsAllowed,
    LogStart,
    LostRange,
    NodeContested,
    NodeRegistration,
    OffsetsSkipped,
    PartitionAdopted,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    Reconciled,
    SegmentMissing,
    TimePassed,
    TopicPolicyChange,
)
from rlmm.records.record_fields import (
    Tags,
    read_epochs,
    read_incarnation,
    read_mode,
    read_partition,
    write_epochs,
    write_incarnation,
    write_partition,
)

VERSION = 0
_TAG_POLICY_OFFSET = 0  # of LOG_START
_TAG_TOPIC_ID = 0  # of TOPIC_POLICY
_TAG_FOLLOW_DELETE_RECORDS = 1  # of TOPIC_POLICY, empty: there or not


def encode_control(record: ControlRecord) -> tuple[ControlRecordType, bytes]:
    """(type id, value). A number that does not fit its field is an InvalidRequest."""
    writer = Writer()
    writer.int16(VERSION)
    if isinstance(record, TopicPolicyChange):
        type_ = _write_policy(writer, record)
    elif isinstance(record, FeatureLevel):
        type_ = ControlRecordType.FEATURE_LEVEL
        writer.int16(record.level)
        writer.int64(record.replaces_offset)
    elif isinstance(record, Reconciled):
        type_ = ControlRecordType.RECONCILED
        writer.int64(record.restart_offset)
    elif isinstance(record, NodeRegistration):
        type_ = ControlRecordType.NODE_REGISTRATION
        write_incarnation(writer, record.incarnation)
    elif isinstance(record, NodeContested):
        type_ = ControlRecordType.NODE_CONTESTED
        write_incarnation(writer, record.incarnation)
        writer.int64(record.registered_offset)
    elif isinstance(record, TimePassed):
        type_ = ControlRecordType.TIME_PASSED
        writer.int64(record.since_offset)
        writer.int64(record.passed_ms)
    else:
        write_partition(writer, record.partition)
        type_ = _write_body(writer, record)
    writer.tagged_fields((*_known_tags(record), *record.unknown_tags))
    return type_, writer.done()


def _known_tags(record: ControlRecord) -> Tags:
    if isinstance(record, LogStart) and record.policy_offset is not None:
        return ((_TAG_POLICY_OFFSET, record.policy_offset.to_bytes(8, "big", signed=True)),)
    if not isinstance(record, TopicPolicyChange):
        return ()
    policy, tags = record.policy, []
    if policy.topic_id != ZERO_UUID:
        tags.append((_TAG_TOPIC_ID, bytes(policy.topic_id)))
    if policy.follow_delete_records:
        tags.append((_TAG_FOLLOW_DELETE_RECORDS, b""))
    return tuple(tags)


def _write_policy(writer: Writer, record: TopicPolicyChange) -> ControlRecordType:
    writer.string(record.topic)
    writer.int64(record.policy.retention_ms)
    writer.int64(record.policy.retention_bytes)
    writer.boolean(record.policy.copy_paused)
    writer.boolean(record.policy.delete_paused)
    writer.int64(record.replaces_offset)
    return ControlRecordType.TOPIC_POLICY


def _write_body(
    writer: Writer,
    record: PartitionClaim
    | LogStart
    | LostRange
    | PartitionModeChange
    | ClaimReset
    | PartitionDeleteUndo
    | PartitionAdopted
    | SegmentMissing
    | GapsAllowed
    | OffsetsSkipped,
) -> ControlRecordType:
    if isinstance(record, PartitionClaim):
        return _write_claim(writer, record)
    if isinstance(record, PartitionAdopted):
        writer.int64(record.token)
        return ControlRecordType.PARTITION_ADOPTED
    if isinstance(record, SegmentMissing):
        writer.uuid(record.segment)
        writer.int64(record.finished_at)
        return ControlRecordType.SEGMENT_MISSING
    if isinstance(record, LogStart):
        writer.int64(record.token)
        writer.int32(record.offset_epoch)
        writer.int64(record.offset)
        return ControlRecordType.LOG_START
    if isinstance(record, LostRange | OffsetsSkipped):
        writer.int64(record.token)
        writer.int64(record.start)
        writer.int64(record.end)
        writer.string(record.why[:WHY_CHARACTERS_MAX])
        if isinstance(record, LostRange):
            return ControlRecordType.LOST_RANGE
        return ControlRecordType.OFFSETS_SKIPPED
    if isinstance(record, GapsAllowed):
        writer.string(record.why[:WHY_CHARACTERS_MAX])
        return ControlRecordType.GAPS_ALLOWED
    if isinstance(record, PartitionModeChange):
        writer.int8(record.mode)
        writer.int64(record.replaces_offset)
        return ControlRecordType.PARTITION_MODE
    writer.int64(record.replaces_offset)
    if isinstance(record, ClaimReset):
        return ControlRecordType.CLAIM_RESET
    return ControlRecordType.PARTITION_DELETE_UNDO


def _write_claim(writer: Writer, record: PartitionClaim) -> ControlRecordType:
    writer.int8(record.mode)
    writer.int32(record.leader_epoch)
    write_incarnation(writer, record.incarnation)
    writer.int64(record.claim_number)
    write_epochs(writer, record.leader_epochs)
    writer.int64(record.local_log_start_offset)
    return ControlRecordType.PARTITION_CLAIM


def decode_control(type_: int, value: bytes, *, source: str) -> ControlRecord:
    """The record; CorruptData for an unknown type or version, and for anything malformed."""
    reader = Reader(value, source)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"control record {type_} has version {version}, known is {VERSION}")
    record = _read_by_type(reader, type_)
    reader.expect_end()
    return record


def _read_by_type(reader: Reader, type_: int) -> ControlRecord:
    if type_ == ControlRecordType.FEATURE_LEVEL:
        return FeatureLevel(reader.int16(), reader.int64(), reader.tagged_fields())
    if type_ == ControlRecordType.TOPIC_POLICY:
        return _read_policy(reader)
    if type_ == ControlRecordType.RECONCILED:
        return Reconciled(reader.int64(), reader.tagged_fields())
    if type_ == ControlRecordType.NODE_REGISTRATION:
        return NodeRegistration(read_incarnation(reader), reader.tagged_fields())
    if type_ == ControlRecordType.NODE_CONTESTED:
        return NodeContested(read_incarnation(reader), reader.int64(), reader.tagged_fields())
    if type_ == ControlRecordType.TIME_PASSED:
        return TimePassed(reader.int64(), reader.int64(), reader.tagged_fields())
    if type_ not in _ABOUT_A_PARTITION:
        raise reader.corrupt(f"{type_} is no control record type of the metadata log")
    partition, tags = read_partition(reader)
    if tags:
        raise reader.corrupt("a partition of a control record has no tagged fields")
    if type_ == ControlRecordType.PARTITION_CLAIM:
        return _read_claim(reader, partition)
    if type_ == ControlRecordType.LOG_START:
        return _read_log_start(reader, partition)
    if type_ == ControlRecordType.LOST_RANGE:
        return LostRange(*_read_lost_range(reader, partition))
    if type_ == ControlRecordType.OFFSETS_SKIPPED:
        return OffsetsSkipped(*_read_lost_range(reader, partition))
    if type_ == ControlRecordType.GAPS_ALLOWED:
        return GapsAllowed(partition, _read_why(reader), reader.tagged_fields())
    if type_ == ControlRecordType.PARTITION_MODE:
        mode = read_mode(reader)
        return PartitionModeChange(partition, mode, reader.int64(), reader.tagged_fields())
    if type_ == ControlRecordType.PARTITION_ADOPTED:
        return PartitionAdopted(partition, reader.int64(), reader.tagged_fields())
    if type_ == ControlRecordType.SEGMENT_MISSING:
        segment = reader.uuid()
        return SegmentMissing(partition, segment, reader.int64(), reader.tagged_fields())
    if type_ == ControlRecordType.CLAIM_RESET:
        return ClaimReset(partition, reader.int64(), reader.tagged_fields())
    return PartitionDeleteUndo(partition, reader.int64(), reader.tagged_fields())


_ABOUT_A_PARTITION = frozenset(
    {
        ControlRecordType.PARTITION_CLAIM,
        ControlRecordType.LOG_START,
        ControlRecordType.LOST_RANGE,
        ControlRecordType.PARTITION_MODE,
        ControlRecordType.CLAIM_RESET,
        ControlRecordType.PARTITION_DELETE_UNDO,
        ControlRecordType.PARTITION_ADOPTED,
        ControlRecordType.SEGMENT_MISSING,
        ControlRecordType.GAPS_ALLOWED,
        ControlRecordType.OFFSETS_SKIPPED,
    }
)


def _read_claim(reader: Reader, partition: TopicIdPartition) -> PartitionClaim:
    mode = read_mode(reader)
    leader_epoch = reader.int32()
    incarnation = read_incarnation(reader)
    claim_number = reader.int64()
    epochs = read_epochs(reader)
    return PartitionClaim(
        partition,
        mode,
        leader_epoch,
        incarnation,
        claim_number,
        epochs,
        local_log_start_offset=reader.int64(),
        unknown_tags=reader.tagged_fields(),
    )


def _read_log_start(reader: Reader, partition: TopicIdPartition) -> LogStart:
    token, epoch, offset = reader.int64(), reader.int32(), reader.int64()
    given, unknown = _taken(reader.tagged_fields(), _TAG_POLICY_OFFSET)
    if given is None:
        return LogStart(partition, token, epoch, offset, unknown)
    value = Reader(given, "policy offset of a log start")
    policy_offset = value.int64()
    value.expect_end()
    return LogStart(partition, token, epoch, offset, unknown, policy_offset)


def _taken(tags: Tags, number: int) -> tuple[bytes | None, Tags]:
    """(the value of a tagged field that we know, the others)."""
    return dict(tags).get(number), tuple(each for each in tags if each[0] != number)


def _read_lost_range(
    reader: Reader, partition: TopicIdPartition
) -> tuple[TopicIdPartition, int, int, int, str, Tags]:
    token, start, end = reader.int64(), reader.int64(), reader.int64()
    return partition, token, start, end, _read_why(reader), reader.tagged_fields()


def _read_why(reader: Reader) -> str:
    why = reader.string()
    if len(why) > WHY_CHARACTERS_MAX:
        raise reader.corrupt(f"the reason has {len(why)} characters, at most {WHY_CHARACTERS_MAX}")
    return why


def _read_policy(reader: Reader) -> TopicPolicyChange:
    topic = reader.string()
    retention_ms, retention_bytes = reader.int64(), reader.int64()
    copy_paused, delete_paused = reader.boolean(), reader.boolean()
    replaces_offset = reader.int64()
    given, unknown = _taken(reader.tagged_fields(), _TAG_TOPIC_ID)
    topic_id = ZERO_UUID
    if given is not None:
        value = Reader(given, "topic id of a topic policy")
        topic_id = value.uuid()
        value.expect_end()
    follows, unknown = _taken(unknown, _TAG_FOLLOW_DELETE_RECORDS)
    if follows:
        raise reader.corrupt("follow_delete_records of a topic policy has a value")
    policy = TopicPolicy(
        retention_ms,
        retention_bytes,
        copy_paused,
        delete_paused,
        topic_id=topic_id,
        follow_delete_records=follows is not None,
    )
    return TopicPolicyChange(topic, policy, replaces_offset, unknown)
