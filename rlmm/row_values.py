"""Values of the rows, both ways. A segment row's value is its encoded record (`records.py`).

What no encoder here wrote is CorruptData: rows come from a disk, and from other nodes' snapshots.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.primitives import Reader, Writer
from rlmm.control_records import (
    Tags,
    read_incarnation,
    read_mode,
    write_incarnation,
)
from rlmm.partition_state import UNKNOWN_OFFSET, Claim, Mode, Restart, TopicPolicy, Totals
from rlmm.segment import PartitionDeleteState

_INT64 = struct.Struct(">q")
_EPOCH = struct.Struct(">iq")
_COVERAGE = struct.Struct(">qqq16s")
_INTERVAL = struct.Struct(">qq?")
_TOTALS = struct.Struct(">qqqqq")
_POLICY = struct.Struct(">qq??q")
_RESTART = struct.Struct(">qq")
_FEATURE_LEVEL = struct.Struct(">hq")

NO_DELETE_STATE = -1


def _unpacked(layout: struct.Struct, value: bytes, what: str) -> tuple[Any, ...]:
    try:
        return layout.unpack(value)
    except struct.error:
        raise _corrupt(f"{len(value)} bytes, where such a row has {layout.size}", what) from None


def _corrupt(message: str, what: str, position: int = 0) -> CorruptData:
    return CorruptData(message, source=f"{what} row", position=position)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """What is known of a partition, but its lineage, highest copied offsets and lost ranges.

    `claim` is the last accepted one; it stands unless `claim_voided`. `cut_allowed`: an admin's
    ClaimReset waits for the claim that uses it.
    """

    topic: str
    mode: Mode
    mode_offset: int
    claim: Claim | None = None
    claim_voided: bool = False
    cut_allowed: bool = False
    log_start_offset: int = UNKNOWN_OFFSET
    local_log_start_offset: int = UNKNOWN_OFFSET
    delete_state: PartitionDeleteState | None = None
    delete_offset: int = UNKNOWN_OFFSET
    delete_marked_at_ms: int = UNKNOWN_OFFSET
    copy_started: int = 0
    copy_finished: int = 0
    delete_started: int = 0
    size_bytes: int = 0
    unknown_tags: Tags = ()

    @property
    def standing_claim(self) -> Claim | None:
        return None if self.claim_voided else self.claim


def encode_partition(row: PartitionRow) -> bytes:
    writer = Writer()
    writer.string(row.topic)
    writer.int8(row.mode)
    writer.int64(row.mode_offset)
    writer.boolean(row.claim is not None)
    if row.claim is not None:
        writer.int64(row.claim.token)
        writer.int32(row.claim.leader_epoch)
        write_incarnation(writer, row.claim.incarnation)
        writer.int64(row.claim.claim_number)
        writer.int64(row.claim.timestamp_ms)
    writer.boolean(row.claim_voided)
    writer.boolean(row.cut_allowed)
    writer.int64(row.log_start_offset)
    writer.int64(row.local_log_start_offset)
    writer.int8(NO_DELETE_STATE if row.delete_state is None else row.delete_state)
    writer.int64(row.delete_offset)
    writer.int64(row.delete_marked_at_ms)
    writer.int64(row.copy_started)
    writer.int64(row.copy_finished)
    writer.int64(row.delete_started)
    writer.int64(row.size_bytes)
    writer.tagged_fields(row.unknown_tags)
    return writer.done()


def decode_partition(value: bytes) -> PartitionRow:
    reader = Reader(value, "partition row")
    row = PartitionRow(
        topic=reader.string(),
        mode=read_mode(reader),
        mode_offset=reader.int64(),
        claim=_read_claim(reader) if reader.boolean() else None,
        claim_voided=reader.boolean(),
        cut_allowed=reader.boolean(),
        log_start_offset=reader.int64(),
        local_log_start_offset=reader.int64(),
        delete_state=_read_delete_state(reader),
        delete_offset=reader.int64(),
        delete_marked_at_ms=reader.int64(),
        copy_started=reader.int64(),
        copy_finished=reader.int64(),
        delete_started=reader.int64(),
        size_bytes=reader.int64(),
        unknown_tags=reader.tagged_fields(),
    )
    reader.expect_end()
    return row


def _read_claim(reader: Reader) -> Claim:
    token = reader.int64()
    leader_epoch = reader.int32()
    incarnation = read_incarnation(reader)
    return Claim(token, leader_epoch, incarnation, reader.int64(), reader.int64())


def _read_delete_state(reader: Reader) -> PartitionDeleteState | None:
    number = reader.int8()
    if number == NO_DELETE_STATE:
        return None
    try:
        return PartitionDeleteState(number)
    except ValueError:
        raise reader.corrupt(f"{number} is no partition delete state") from None


class Covered(NamedTuple):
    """Offsets [`start`, `end`] of an epoch, served by `segment`.

    `reach` is the last offset that the segment has in this epoch, `finished_at` the metadata offset
    of its COPY_SEGMENT_FINISHED: together they decide who serves where segments overlap.
    """

    start: int
    end: int
    reach: int
    finished_at: int
    segment: Uuid


def encode_covered(covered: Covered) -> bytes:
    return _COVERAGE.pack(covered.end, covered.reach, covered.finished_at, covered.segment)


def decode_covered(start: int, value: bytes) -> Covered:
    end, reach, finished_at, segment = _unpacked(_COVERAGE, value, "coverage")
    return Covered(start, end, reach, finished_at, Uuid(segment))


class Interval(NamedTuple):
    """A COPY_SEGMENT_FINISHED segment's own offsets [`start`, `end`] in one epoch.

    `lowest_epoch`: this is the row of the segment's lowest epoch that has offsets, of which it has
    exactly one, so that a walk over all rows meets each segment once.
    """

    start: int
    end: int
    finished_at: int
    segment: Uuid
    lowest_epoch: bool


def encode_interval(interval: Interval) -> bytes:
    return _INTERVAL.pack(interval.end, interval.finished_at, interval.lowest_epoch)


def decode_interval(start: int, segment: Uuid, value: bytes) -> Interval:
    end, finished_at, lowest_epoch = _unpacked(_INTERVAL, value, "interval")
    return Interval(start, end, finished_at, segment, lowest_epoch)


def encode_offset(offset: int) -> bytes:
    return _INT64.pack(offset)


def decode_offset(value: bytes) -> int:
    offset: int = _unpacked(_INT64, value, "offset")[0]
    return offset


def encode_lineage(lineage: Epochs) -> bytes:
    return b"".join(_EPOCH.pack(*entry) for entry in lineage)


def decode_lineage(value: bytes) -> Epochs:
    if len(value) % _EPOCH.size:
        raise _corrupt(f"{len(value)} bytes, where an entry has {_EPOCH.size}", "lineage")
    return tuple(EpochEntry(*fields) for fields in _EPOCH.iter_unpack(value))


def encode_lost_range(end: int, why: str) -> bytes:
    return _INT64.pack(end) + why.encode()


def decode_lost_range(value: bytes) -> tuple[int, str]:
    """(end, why)."""
    end = decode_offset(value[: _INT64.size])
    try:
        return end, value[_INT64.size :].decode()
    except UnicodeDecodeError as error:
        raise _corrupt(f"not UTF-8 ({error.reason})", "lost range", _INT64.size) from None


def encode_totals(totals: Totals) -> bytes:
    return _TOTALS.pack(
        totals.copy_started,
        totals.copy_finished,
        totals.delete_started,
        totals.size_bytes,
        totals.partitions,
    )


def decode_totals(value: bytes) -> Totals:
    return Totals(*_unpacked(_TOTALS, value, "totals"))


def encode_restart(restart: Restart) -> bytes:
    return _RESTART.pack(restart.offset, restart.reconciled_offset)


def decode_restart(value: bytes) -> Restart:
    return Restart(*_unpacked(_RESTART, value, "restart"))


def encode_policy(policy: TopicPolicy) -> bytes:
    return _POLICY.pack(
        policy.retention_ms,
        policy.retention_bytes,
        policy.copy_paused,
        policy.delete_paused,
        policy.offset,
    )


def decode_policy(value: bytes) -> TopicPolicy:
    return TopicPolicy(*_unpacked(_POLICY, value, "topic policy"))


def encode_feature_level(level: int, offset: int) -> bytes:
    return _FEATURE_LEVEL.pack(level, offset)


def decode_feature_level(value: bytes) -> tuple[int, int]:
    """(level, metadata offset of the record that set it)."""
    level, offset = _unpacked(_FEATURE_LEVEL, value, "feature level")
    return level, offset
