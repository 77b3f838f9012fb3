"""Partition rows, both ways: the general way, and the fast way for the layout of a claimed one.

Every record about a partition reads and writes its row. Nearly all are of one layout (a claim is
there, no unknown tagged fields), which takes one step. Whatever differs goes the general way, so
that there is one judgement on what is valid. What was written or read last is remembered by its
bytes, so that it is never out of date. Pure.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.primitives import Reader, Writer
from rlmm.partition_state import UNKNOWN_OFFSET, Claim, Mode
from rlmm.records.record_fields import Tags, read_incarnation, read_mode, write_incarnation
from rlmm.records.short_lengths import LENGTH_MAX, NOT_SHORT, SHORT_LENGTHS, read_short_length
from rlmm.segment import Incarnation, PartitionDeleteState

NO_DELETE_STATE = -1
REMEMBERED_MAX = 1_024

_TAG_DELETE_GRACE = 0  # only in rows of marked partitions, which are few
_TAG_GAPS_ALLOWED = 1  # only in rows of partitions that were compacted once, which are few
_TAG_DELETE_COUNTS_FROM = 2  # as the grace
_KNOWN_TAGS = frozenset({_TAG_DELETE_GRACE, _TAG_GAPS_ALLOWED, _TAG_DELETE_COUNTS_FROM})

# Mode and its offset; there is a claim; token, epoch, incarnation, claim number, time; voided, cut
# allowed; log starts; delete state, offset, time; four counters; no tagged fields.
_CLAIMED = struct.Struct(">bqBqii16sqqqBBqqbqqqqqqB")
_MODES = tuple(Mode)
_DELETE_STATES = {NO_DELETE_STATE: None} | {int(state): state for state in PartitionDeleteState}
_FLAGS = (False, True)


class PartitionRow(NamedTuple):
    """What is known of a partition, but its lineage, highest copied offsets and lost ranges.

    `claim` is the last accepted one; it stands unless `claim_voided`. `cut_allowed`: an admin's
    ClaimReset waits for the claim that uses it. `delete_grace_ms` and `delete_counts_from_ms` are
    -1 unless the partition is marked. `gaps_allowed` is why offsets may be without a batch, empty
    where they may not. A tuple, because each record makes one: a frozen dataclass takes three times
    as long.
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
    delete_grace_ms: int = -1
    gaps_allowed: str = ""
    delete_counts_from_ms: int = -1

    @property
    def standing_claim(self) -> Claim | None:
        return None if self.claim_voided else self.claim

    def counted(
        self, copy_started: int, copy_finished: int, delete_started: int, size_bytes: int
    ) -> PartitionRow:
        """With these added to its counters."""
        return PartitionRow(
            *self[:11],
            self[11] + copy_started,
            self[12] + copy_finished,
            self[13] + delete_started,
            self[14] + size_bytes,
            *self[15:],
        )


_remembered: dict[bytes, PartitionRow] = {}


def _remember(value: bytes, row: PartitionRow) -> None:
    if len(_remembered) >= REMEMBERED_MAX:
        _remembered.clear()
    _remembered[value] = row


def encode_partition(row: PartitionRow) -> bytes:
    """InvalidRequest: a number does not fit its field."""
    value = _encode_claimed(row)
    if value is None:
        return encode_general(row)
    _remember(value, row)
    return value


def _encode_claimed(row: PartitionRow) -> bytes | None:
    (topic, mode, mode_offset, claim, voided, cut_allowed, log_start, local_log_start,
     delete_state, delete_offset, marked_at_ms, started, finished, deleted, size,
     tags, grace_ms, gaps_allowed, counts_from_ms) = row  # fmt: skip
    if claim is None or tags or max(grace_ms, counts_from_ms) >= 0 or gaps_allowed:
        return None
    incarnation = claim.incarnation
    try:
        name = topic.encode()
        if len(name) >= LENGTH_MAX:
            return None
        return SHORT_LENGTHS[len(name) + 1] + name + _CLAIMED.pack(
            mode, mode_offset, 1, claim.token, claim.leader_epoch,
            incarnation.node_id, incarnation.directory_id, incarnation.boot_counter,
            claim.claim_number, claim.timestamp_ms, voided, cut_allowed, log_start, local_log_start,
            NO_DELETE_STATE if delete_state is None else delete_state, delete_offset, marked_at_ms,
            started, finished, deleted, size, 0,
        )  # fmt: skip
    except (struct.error, UnicodeEncodeError):
        return None


def encode_general(row: PartitionRow) -> bytes:
    """Any row, field by field."""
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
    known: Tags = ()
    if row.delete_grace_ms >= 0:
        known = ((_TAG_DELETE_GRACE, _milliseconds(row.delete_grace_ms)),)
    if row.gaps_allowed:
        gaps = Writer()
        gaps.string(row.gaps_allowed)
        known = (*known, (_TAG_GAPS_ALLOWED, gaps.done()))
    if row.delete_counts_from_ms >= 0:
        counts_from = _milliseconds(row.delete_counts_from_ms)
        known = (*known, (_TAG_DELETE_COUNTS_FROM, counts_from))
    writer.tagged_fields((*known, *row.unknown_tags))
    return writer.done()


def _milliseconds(value: int) -> bytes:
    writer = Writer()
    writer.int64(value)
    return writer.done()


def decode_partition(value: bytes) -> PartitionRow:
    """CorruptData: no encoder here wrote it."""
    row = _remembered.get(value)
    if row is not None:
        return row
    row = _decode_claimed(value)
    if row is None:
        return decode_general(value)
    _remember(value, row)
    return row


def _decode_claimed(value: bytes) -> PartitionRow | None:
    length, topic_at = read_short_length(value, 0) if len(value) > 1 else (NOT_SHORT, 0)
    topic_end = topic_at + length - 1
    if length < 1 or len(value) != topic_end + _CLAIMED.size:
        return None
    (mode, mode_offset, claimed, token, leader_epoch, node_id, directory_id, boot_counter,
     claim_number, timestamp_ms, voided, cut_allowed, log_start, local_log_start, delete_state,
     delete_offset, marked_at_ms, started, finished, deleted, size, tags) = (
        _CLAIMED.unpack_from(value, topic_end)
    )  # fmt: skip
    if claimed != 1 or tags:
        return None
    try:
        incarnation = Incarnation(node_id, Uuid(directory_id), boot_counter)
        return PartitionRow(
            value[topic_at:topic_end].decode(),
            _MODES[mode] if mode >= 0 else Mode(mode), mode_offset,
            Claim(token, leader_epoch, incarnation, claim_number, timestamp_ms),
            _FLAGS[voided], _FLAGS[cut_allowed], log_start, local_log_start,
            _DELETE_STATES[delete_state], delete_offset, marked_at_ms,
            started, finished, deleted, size,
        )  # fmt: skip
    except (IndexError, KeyError, ValueError):
        return None


def decode_general(value: bytes) -> PartitionRow:
    """Any row, field by field. CorruptData: no encoder here wrote it."""
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
    )
    tags = reader.tagged_fields()
    reader.expect_end()
    if not tags:
        return row
    return row._replace(
        unknown_tags=tuple(each for each in tags if each[0] not in _KNOWN_TAGS),
        delete_grace_ms=_read_milliseconds(dict(tags).get(_TAG_DELETE_GRACE)),
        delete_counts_from_ms=_read_milliseconds(dict(tags).get(_TAG_DELETE_COUNTS_FROM)),
        gaps_allowed=_read_gaps_allowed(dict(tags).get(_TAG_GAPS_ALLOWED)),
    )


def _read_gaps_allowed(value: bytes | None) -> str:
    if value is None:
        return ""
    reader = Reader(value, "partition row, gaps allowed")
    why = reader.string()
    reader.expect_end()
    if not why:
        raise reader.corrupt("gaps are allowed for no reason")
    return why


def _read_milliseconds(value: bytes | None) -> int:
    if value is None:
        return -1
    reader = Reader(value, "partition row, delete grace")
    found = reader.int64()
    reader.expect_end()
    if found < 0:
        raise reader.corrupt(f"a grace of {found} ms")
    return found


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
