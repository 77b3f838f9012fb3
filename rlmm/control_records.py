"""Strandline's own metadata records: control records with private type ids, which Kafka skips.

Every value is `int16 version`, the fields, tagged fields (all encodings are Kafka's flexible ones,
`kafka_formats/primitives.py`). A reader takes version 0 only; additions are tagged fields, which a
node that does not know them keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.primitives import Reader, Writer
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.record_fields import (
    Tags,
    read_epochs,
    read_incarnation,
    read_mode,
    read_partition,
    write_epochs,
    write_incarnation,
    write_partition,
)
from rlmm.segment import Incarnation, TopicIdPartition

VERSION = 0
_TAG_POLICY_OFFSET = 0  # of LOG_START
WHY_CHARACTERS_MAX = 500


class ControlRecordType(IntEnum):
    """Private control record types. Numbers are on the wire and never given twice."""

    PARTITION_CLAIM = 1000
    LOG_START = 1001
    LOST_RANGE = 1002
    PARTITION_MODE = 1003
    TOPIC_POLICY = 1004
    CLAIM_RESET = 1005
    PARTITION_DELETE_UNDO = 1006
    FEATURE_LEVEL = 1007
    PARTITION_ADOPTED = 1008
    SEGMENT_MISSING = 1009
    RECONCILED = 1010
    GAPS_ALLOWED = 1011
    OFFSETS_SKIPPED = 1012
    NODE_REGISTRATION = 1013
    NODE_CONTESTED = 1014
    TIME_PASSED = 1016
    SNAPSHOT_ROW = 1100  # only in snapshots: rlmm/snapshot_rows.py


@dataclass(frozen=True, slots=True)
class PartitionClaim:
    """A node became leader of the partition. Its metadata offset is the token of that leadership.

    `leader_epochs` is the broker's leader epoch checkpoint, whose last epoch is `leader_epoch`.
    `claim_number` counts the claims of this incarnation, upwards. `local_log_start_offset` is the
    broker's own at the claim, for information; -1 if not known.
    """

    partition: TopicIdPartition
    mode: Mode
    leader_epoch: int
    incarnation: Incarnation
    claim_number: int
    leader_epochs: Epochs
    local_log_start_offset: int = -1
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class LogStart:
    """The tier's log start moves forward to `offset`, which lies in epoch `offset_epoch`.

    `policy_offset`: the `offset` of the topic's policy by which retention moves it; None where it
    is not retention that does.
    """

    partition: TopicIdPartition
    token: int
    offset_epoch: int
    offset: int
    unknown_tags: Tags = ()
    policy_offset: int | None = None


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets [`start`, `end`] (inclusive) were gone before they could be copied."""

    partition: TopicIdPartition
    token: int
    start: int
    end: int
    why: str
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class PartitionModeChange:
    """An admin's change of mode. `replaces_offset` is the `mode_offset` it saw, -1 for none."""

    partition: TopicIdPartition
    mode: Mode
    replaces_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class TopicPolicyChange:
    """An admin's policy for a topic; its own `policy.offset` is not sent.

    `replaces_offset` is the `offset` of the policy it saw, -1 for the defaults.
    """

    topic: str
    policy: TopicPolicy
    replaces_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class ClaimReset:
    """An admin voids the claim with the token `replaces_offset`.

    The next claim may come from any node at the same or a higher leader epoch, and may cut the
    lineage without limit.
    """

    partition: TopicIdPartition
    replaces_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class PartitionDeleteUndo:
    """Takes back the DELETE_PARTITION_MARKED at metadata offset `replaces_offset`."""

    partition: TopicIdPartition
    replaces_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """From here on records mean what `level` says.

    `replaces_offset` is the metadata offset of the level before, -1 for the first.
    """

    level: int
    replaces_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class PartitionAdopted:
    """After a restart from a snapshot: the claimant has recorded what the store holds whole of the
    partition. Until then nobody else's unfinished copies are taken back.
    """

    partition: TopicIdPartition
    token: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class SegmentMissing:
    """An admin's word that the store does not have a segment of the snapshot any more.

    `finished_at` is that of the row it saw.
    """

    partition: TopicIdPartition
    segment: Uuid
    finished_at: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """An admin's word that a full listing was compared with the state since the restart at
    `restart_offset`. From here on deletes are allowed again.
    """

    restart_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class GapsAllowed:
    """Offsets without a batch are legal in this partition from here on: a cleaner of Kafka's was
    seen to have been at work in it, or an admin says that it is so. `why` tells which.
    """

    partition: TopicIdPartition
    why: str
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class OffsetsSkipped:
    """An admin gives up [`start`, `end`] (inclusive), which can't be copied: a lost range with a
    name behind it. It may lie above the next offset, never below it. `token` is that of the claim
    that stands, as the admin saw it.
    """

    partition: TopicIdPartition
    token: int
    start: int
    end: int
    why: str
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """A process began to work with this incarnation; before its first claim. What the node id had
    claimed with another directory is void from here on. Whatever else is to be known of a node will
    be in tagged fields, which its row keeps.
    """

    incarnation: Incarnation
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class NodeContested:
    """The process with this incarnation lives, though another directory registered with its node id
    at metadata offset `registered_offset`: neither may write.
    """

    incarnation: Incarnation
    registered_offset: int
    unknown_tags: Tags = ()


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A node measured, by its monotonic clock, that `passed_ms` went by since it applied the record
    before this one, at `since_offset` (-1: there was none).
    """

    since_offset: int
    passed_ms: int
    unknown_tags: Tags = ()


ControlRecord = (
    PartitionClaim
    | LogStart
    | LostRange
    | PartitionModeChange
    | TopicPolicyChange
    | ClaimReset
    | PartitionDeleteUndo
    | FeatureLevel
    | PartitionAdopted
    | SegmentMissing
    | Reconciled
    | GapsAllowed
    | OffsetsSkipped
    | NodeRegistration
    | NodeContested
    | TimePassed
)


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
    if not isinstance(record, LogStart) or record.policy_offset is None:
        return ()
    return ((_TAG_POLICY_OFFSET, record.policy_offset.to_bytes(8, "big", signed=True)),)


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
    tags = reader.tagged_fields()
    unknown = tuple(each for each in tags if each[0] != _TAG_POLICY_OFFSET)
    given = dict(tags).get(_TAG_POLICY_OFFSET)
    if given is None:
        return LogStart(partition, token, epoch, offset, unknown)
    value = Reader(given, "policy offset of a log start")
    policy_offset = value.int64()
    value.expect_end()
    return LogStart(partition, token, epoch, offset, unknown, policy_offset)


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
    policy = TopicPolicy(
        retention_ms=reader.int64(),
        retention_bytes=reader.int64(),
        copy_paused=reader.boolean(),
        delete_paused=reader.boolean(),
    )
    return TopicPolicyChange(topic, policy, reader.int64(), reader.tagged_fields())
