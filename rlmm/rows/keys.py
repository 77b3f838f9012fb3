"""Keys of the rows: one byte of kind, then big-endian fields, so that rows sort by them.

Logical rows are the state: equal on every node at the same metadata offset, part of the digest and
of snapshots. Keys from LOGICAL_START on are logical; those below belong to one node's view alone.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition


class RowKind(IntEnum):
    """The first byte of a key. The numbers are on disk and in snapshots; never reuse one."""

    FEATURE_LEVEL = 0x01
    RECORD_TIME = 0x02
    TOTALS = 0x03
    RESTART = 0x04
    NODE = 0x05  # node id
    MEASURED_TIME = 0x06
    MIGRATION = 0x07
    SHADOW = 0x08
    SHADOW_POSITION = 0x09  # partition of the metadata topic
    MIGRATION_ACKNOWLEDGED = 0x0A  # broker id
    SHADOW_OUTBOX = 0x0B  # metadata offset
    TOPIC_POLICY = 0x10  # topic
    CLUSTER_SETTING = 0x11  # key, 0, kind of scope, name
    PARTITION = 0x20  # partition
    LINEAGE = 0x21  # partition
    HIGHEST_COPIED = 0x22  # partition, epoch
    LOST_RANGE = 0x23  # partition, start
    TOPIC_NAME = 0x24  # topic, 0, partition number, topic id
    ADOPTED = 0x25  # partition
    EXPIRY = 0x26  # partition
    IMPORTING = 0x27  # partition
    SEGMENT = 0x30  # segment id
    UNFINISHED = 0x31  # partition, segment id: COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED
    INTERVAL = 0x32  # partition, epoch, span class, start, segment id: COPY_SEGMENT_FINISHED
    COVERAGE = 0x33  # partition, epoch, start
    SEGMENT_TOMBSTONE = 0x40  # segment id
    PARTITION_TOMBSTONE = 0x41  # partition
    PURGE = 0x42  # due time, then the key to purge


LOGICAL_START = b"\x01"
LOGICAL_END = b"\xf0"

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

FEATURE_LEVEL_KEY = bytes((RowKind.FEATURE_LEVEL,))
RECORD_TIME_KEY = bytes((RowKind.RECORD_TIME,))
MEASURED_TIME_KEY = bytes((RowKind.MEASURED_TIME,))
MIGRATION_KEY = bytes((RowKind.MIGRATION,))
MIGRATION_ACKNOWLEDGED_PREFIX = bytes((RowKind.MIGRATION_ACKNOWLEDGED,))
SHADOW_KEY = bytes((RowKind.SHADOW,))
TOTALS_KEY = bytes((RowKind.TOTALS,))
RESTART_KEY = bytes((RowKind.RESTART,))
PARTITION_BYTES = 20
PURGE_PREFIX_BYTES = 9
PURGE_PREFIX = bytes((RowKind.PURGE,))
NODE_PREFIX = bytes((RowKind.NODE,))
SHADOW_POSITION_PREFIX = bytes((RowKind.SHADOW_POSITION,))
SHADOW_OUTBOX_PREFIX = bytes((RowKind.SHADOW_OUTBOX,))
CLUSTER_SETTINGS_PREFIX = bytes((RowKind.CLUSTER_SETTING,))

_TOPIC_POLICY = bytes((RowKind.TOPIC_POLICY,))
_PARTITION = bytes((RowKind.PARTITION,))
_LINEAGE = bytes((RowKind.LINEAGE,))
_HIGHEST_COPIED = bytes((RowKind.HIGHEST_COPIED,))
_LOST_RANGE = bytes((RowKind.LOST_RANGE,))
_ADOPTED = bytes((RowKind.ADOPTED,))
EXPIRY_PREFIX = bytes((RowKind.EXPIRY,))
IMPORTING_PREFIX = bytes((RowKind.IMPORTING,))
IMPORTING_END = bytes((RowKind.IMPORTING + 1,))
_TOPIC_NAME = bytes((RowKind.TOPIC_NAME,))
_SEGMENT = bytes((RowKind.SEGMENT,))
_UNFINISHED = bytes((RowKind.UNFINISHED,))
_INTERVAL = bytes((RowKind.INTERVAL,))
_COVERAGE = bytes((RowKind.COVERAGE,))
_SEGMENT_TOMBSTONE = bytes((RowKind.SEGMENT_TOMBSTONE,))
_PARTITION_TOMBSTONE = bytes((RowKind.PARTITION_TOMBSTONE,))


def _int32(value: int, field: str) -> bytes:
    try:
        return _INT32.pack(value)
    except struct.error as error:
        raise InvalidRequest(f"{value} does not fit into 32 bits", field=field) from error


def partition_bytes(partition: TopicIdPartition) -> bytes:
    """Topic id and number, which identify a partition in every key; the topic's name does not."""
    try:
        return partition.topic_id + _INT32.pack(partition.partition)
    except struct.error:
        return partition.topic_id + _int32(partition.partition, "partition")


def _name(topic: str) -> bytes:
    """Encode a name, also one that no topic can have: a query for it finds no row."""
    return topic.encode("utf-8", "surrogatepass")


def node_key(node_id: int) -> bytes:
    return NODE_PREFIX + _int32(node_id, "node_id")


def migration_acknowledged_key(broker_id: int) -> bytes:
    return MIGRATION_ACKNOWLEDGED_PREFIX + _int32(broker_id, "broker_id")


def node_of(key: bytes) -> int:
    """The node id in the key of a node's row."""
    return int(_INT32.unpack_from(key, 1)[0])


def shadow_position_key(partition: int) -> bytes:
    return SHADOW_POSITION_PREFIX + _int32(partition, "partition")


def partition_of_shadow_position_key(key: bytes) -> int:
    return int(_INT32.unpack_from(key, 1)[0])


def shadow_outbox_key(offset: int) -> bytes:
    return SHADOW_OUTBOX_PREFIX + _INT64.pack(offset)


def offset_of_shadow_outbox_key(key: bytes) -> int:
    return int(_INT64.unpack_from(key, 1)[0])


def topic_policy_key(topic: str) -> bytes:
    return _TOPIC_POLICY + _name(topic)


def cluster_setting_key(setting: str, scope_kind: int, name: str) -> bytes:
    """The key of a setting's row; `setting` has no zero byte."""
    key = setting.encode() + bytes((0, scope_kind))
    return CLUSTER_SETTINGS_PREFIX + key + name.encode()


def fields_of_cluster_setting_key(key: bytes) -> tuple[str, int, str]:
    """(setting, kind of scope, name)."""
    setting, _, scope = key[1:].partition(b"\0")
    return setting.decode(), scope[0], scope[1:].decode()


def partition_key(partition: TopicIdPartition) -> bytes:
    return _PARTITION + partition_bytes(partition)


def lineage_key(partition: TopicIdPartition) -> bytes:
    return _LINEAGE + partition_bytes(partition)


def expiry_key(partition: TopicIdPartition) -> bytes:
    return EXPIRY_PREFIX + partition_bytes(partition)


def importing_key(partition: TopicIdPartition) -> bytes:
    return IMPORTING_PREFIX + partition_bytes(partition)


def adopted_key(partition: TopicIdPartition) -> bytes:
    return _ADOPTED + partition_bytes(partition)


def highest_copied_prefix(partition: TopicIdPartition) -> bytes:
    return _HIGHEST_COPIED + partition_bytes(partition)


def highest_copied_key(partition: TopicIdPartition, epoch: int) -> bytes:
    return highest_copied_prefix(partition) + _int32(epoch, "leader_epoch")


def epoch_of_highest_copied_key(key: bytes) -> int:
    return int(_INT32.unpack_from(key, 1 + PARTITION_BYTES)[0])


def lost_range_prefix(partition: TopicIdPartition) -> bytes:
    return _LOST_RANGE + partition_bytes(partition)


def lost_range_key(partition: TopicIdPartition, start: int) -> bytes:
    return lost_range_prefix(partition) + _INT64.pack(start)


def start_of_lost_range_key(key: bytes) -> int:
    return int(_INT64.unpack_from(key, 1 + PARTITION_BYTES)[0])


def topic_names_prefix() -> bytes:
    return _TOPIC_NAME


def topic_name_prefix(topic: str) -> bytes:
    """The prefix for all partitions of all topics that have or had this name."""
    return _TOPIC_NAME + _name(topic) + b"\0"


def topic_name_key(partition: TopicIdPartition) -> bytes:
    number = _int32(partition.partition, "partition")
    return topic_name_prefix(partition.topic) + number + partition.topic_id


def partition_of_topic_name_key(key: bytes) -> TopicIdPartition:
    number: int = _INT32.unpack_from(key, len(key) - PARTITION_BYTES)[0]
    return TopicIdPartition(key[1 : -PARTITION_BYTES - 1].decode(), Uuid(key[-16:]), number)


def segment_key(segment: Uuid) -> bytes:
    return _SEGMENT + segment


def unfinished_prefix(partition: TopicIdPartition) -> bytes:
    return _UNFINISHED + partition_bytes(partition)


def unfinished_key(partition: TopicIdPartition, segment: Uuid) -> bytes:
    return unfinished_prefix(partition) + segment


def segment_of_unfinished_key(key: bytes) -> Uuid:
    return Uuid(key[-16:])


def span_class(start: int, end: int) -> int:
    """The span class: class n has spans of 2**n to below 2**(n + 1) offsets."""
    return (end - start + 1).bit_length() - 1


def intervals_prefix(partition: TopicIdPartition) -> bytes:
    return _INTERVAL + partition_bytes(partition)


def interval_prefix(partition: TopicIdPartition, epoch: int) -> bytes:
    return intervals_prefix(partition) + _int32(epoch, "leader_epoch")


def interval_from(prefix: bytes, class_: int, start: int) -> bytes:
    """The lowest key of a span class from `start` on; `prefix` as of `interval_prefix`."""
    return prefix + bytes((class_,)) + _INT64.pack(start)


def interval_key(
    partition: TopicIdPartition, epoch: int, start: int, end: int, segment: Uuid
) -> bytes:
    prefix = interval_prefix(partition, epoch)
    return interval_from(prefix, span_class(start, end), start) + segment


def fields_of_interval_key(key: bytes) -> tuple[int, int, int, Uuid]:
    """(epoch, span class, start, segment id)."""
    epoch: int = _INT32.unpack_from(key, 1 + PARTITION_BYTES)[0]
    start: int = _INT64.unpack_from(key, 6 + PARTITION_BYTES)[0]
    return epoch, key[5 + PARTITION_BYTES], start, Uuid(key[-16:])


def coverage_prefix(partition: TopicIdPartition, epoch: int) -> bytes:
    return _COVERAGE + partition_bytes(partition) + _int32(epoch, "leader_epoch")


def coverage_from(prefix: bytes, start: int) -> bytes:
    """The key of the range that begins at `start`; `prefix` as of `coverage_prefix`."""
    return prefix + _INT64.pack(start)


def start_of_coverage_key(key: bytes) -> int:
    return int(_INT64.unpack_from(key, 5 + PARTITION_BYTES)[0])


def segment_tombstone_key(segment: bytes) -> bytes:
    return _SEGMENT_TOMBSTONE + segment


def partition_tombstone_key(partition: TopicIdPartition) -> bytes:
    return _PARTITION_TOMBSTONE + partition_bytes(partition)


def purge_from(due_ms: int) -> bytes:
    """The lowest key of the purges due at `due_ms` or later."""
    return PURGE_PREFIX + _INT64.pack(due_ms)


def purge_key(due_ms: int, key: bytes) -> bytes:
    """The queue entry that removes the row `key` once measured time reaches `due_ms`."""
    return purge_from(due_ms) + key
