"""Encodes and decodes values of the rows. A segment row's value is its encoded record, a partition
row's is in `partitions.py`.

Decoding raises CorruptData for bytes that no encoder here wrote: rows come from a disk, and from
other nodes' snapshots.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlmm.partition_state import MeasuredTime, Restart, TopicPolicy, Totals

_INT64 = struct.Struct(">q")
_EPOCH = struct.Struct(">iq")
_COVERAGE = struct.Struct(">qqq16s")
_INTERVAL = struct.Struct(">qq?")
_TOTALS = struct.Struct(">qqqqq")
_POLICY = struct.Struct(">qq??q16s")
_FOLLOWS = b"\1"
_RESTART = struct.Struct(">qq")
_MEASURED_TIME = struct.Struct(">qqq")
_FEATURE_LEVEL = struct.Struct(">hq")


def _unpacked(layout: struct.Struct, value: bytes, what: str) -> tuple[Any, ...]:
    try:
        return layout.unpack(value)
    except struct.error:
        raise _corrupt(f"{len(value)} bytes, where such a row has {layout.size}", what) from None


def _corrupt(message: str, what: str, position: int = 0) -> CorruptData:
    return CorruptData(message, source=f"{what} row", position=position)


class Covered(NamedTuple):
    """Offsets [`start`, `end`] of an epoch, inclusive, served by `segment`.

    `reach` is the last offset that the segment has in this epoch, `finished_at` the metadata offset
    of its COPY_SEGMENT_FINISHED. They decide which segment serves where several overlap.
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
    """A COPY_SEGMENT_FINISHED segment's own offsets [`start`, `end`], inclusive, in one epoch.

    `lowest_epoch`: this row is for the segment's lowest epoch that has offsets. A segment has
    exactly one such row, so a walk over all of them finds each segment once.
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
    return _TOTALS.pack(*totals)


def decode_totals(value: bytes) -> Totals:
    return Totals(*_unpacked(_TOTALS, value, "totals"))


def encode_restart(restart: Restart) -> bytes:
    return _RESTART.pack(restart.offset, restart.reconciled_offset)


def decode_restart(value: bytes) -> Restart:
    return Restart(*_unpacked(_RESTART, value, "restart"))


def encode_measured_time(time: MeasuredTime) -> bytes:
    return _MEASURED_TIME.pack(*time)


def decode_measured_time(value: bytes) -> MeasuredTime:
    return MeasuredTime(*_unpacked(_MEASURED_TIME, value, "measured time"))


def encode_policy(policy: TopicPolicy) -> bytes:
    """Encode the policy, with one byte more if DeleteRecords is followed; without that the row and
    the digest are those of older programs.
    """
    row = _POLICY.pack(
        policy.retention_ms,
        policy.retention_bytes,
        policy.copy_paused,
        policy.delete_paused,
        policy.offset,
        policy.topic_id,
    )
    return row + _FOLLOWS if policy.follow_delete_records else row


def decode_policy(value: bytes) -> TopicPolicy:
    row, behind = value[: _POLICY.size], value[_POLICY.size :]
    *decided, topic_id = _unpacked(_POLICY, row, "topic policy")
    if behind not in (b"", b"\0", _FOLLOWS):
        raise _corrupt(
            f"{len(value)} bytes, where such a row has {_POLICY.size}, or a byte more "
            "that says whether it follows DeleteRecords",
            "topic policy",
            _POLICY.size,
        )
    ms, size_bytes, copy_paused, delete_paused, offset = decided
    return TopicPolicy(
        ms, size_bytes, copy_paused, delete_paused, offset, Uuid(topic_id), behind == _FOLLOWS
    )


def encode_feature_level(level: int, offset: int) -> bytes:
    return _FEATURE_LEVEL.pack(level, offset)


def decode_feature_level(value: bytes) -> tuple[int, int]:
    """(level, metadata offset of the record that set it)."""
    level, offset = _unpacked(_FEATURE_LEVEL, value, "feature level")
    return level, offset
