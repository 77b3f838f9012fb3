"""Encodes and decodes partition rows. Pure.

Every record about a partition reads and writes its row. Rows written or read recently are cached by
their bytes, so that a cached one is never outdated.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.primitives import Reader, Writer
from rlmm.partition_state import UNKNOWN_OFFSET, Claim, Mode
from rlmm.records.record_fields import Tags, int64_bytes, value_of
from rlmm.segment import Incarnation, PartitionDeleteState

NO_DELETE_STATE = -1
REMEMBERED_MAX = 1_024

_TAG_DELETE_GRACE = 0  # only in rows of marked partitions
_TAG_GAPS_ALLOWED = 1  # only in rows of partitions that have been compacted
_TAG_DELETE_COUNTS_FROM = 2  # like the grace, only in rows of marked partitions
_TAG_RESET_CUT_AT = 3  # only while a reset that allows a cut is in force
_KNOWN_TAGS = frozenset(
    {_TAG_DELETE_GRACE, _TAG_GAPS_ALLOWED, _TAG_DELETE_COUNTS_FROM, _TAG_RESET_CUT_AT}
)

# After the topic: mode, its offset, whether there is a claim; the claim (token, epoch,
# incarnation, number, time); voided, reset in force, log starts, delete state, its offset and time,
# four counters.
_MODE = struct.Struct(">bqB")
_CLAIM = struct.Struct(">qii16sqqq")
_REST = struct.Struct(">BBqqbqqqqqq")
_MODES = {int(mode): mode for mode in Mode}
_DELETE_STATES = {NO_DELETE_STATE: None} | {int(state): state for state in PartitionDeleteState}
_FLAGS = (False, True)


class PartitionRow(NamedTuple):
    """A partition's state without its lineage, highest copied offsets and lost ranges.

    `claim` is the last accepted one; it is in force unless `claim_voided`. `reset_stands`: an
    admin's ClaimReset waits for the claim that uses it, and `reset_cut_at` is the lowest offset at
    which that claim may cut the lineage, -1 if it may not. `delete_grace_ms` and
    `delete_counts_from_ms` are -1 unless the partition is marked. `gaps_allowed` is the reason why
    offsets may lack a batch, empty if they may not. A tuple, since each record creates one, and a
    frozen dataclass takes three times as long.
    """

    topic: str
    mode: Mode
    mode_offset: int
    claim: Claim | None = None
    claim_voided: bool = False
    reset_stands: bool = False
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
    reset_cut_at: int = -1

    @property
    def standing_claim(self) -> Claim | None:
        return None if self.claim_voided else self.claim

    def counted(
        self, copy_started: int, copy_finished: int, delete_started: int, size_bytes: int
    ) -> PartitionRow:
        """The row with these numbers added to its counters."""
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
    """Encode a partition's row; InvalidRequest if a number does not fit its field."""
    (topic, mode, mode_offset, claim, voided, reset_stands, log_start, local_log_start,
     delete_state, delete_offset, marked_at_ms, started, finished, deleted, size,
     *_) = row  # fmt: skip
    writer = Writer()
    writer.string(topic)
    writer.fields(_MODE, mode, mode_offset, claim is not None)
    if claim is not None:
        node = claim.incarnation
        writer.fields(
            _CLAIM, claim.token, claim.leader_epoch, node.node_id, node.directory_id,
            node.boot_counter, claim.claim_number, claim.timestamp_ms,
        )  # fmt: skip
    writer.fields(
        _REST, voided, reset_stands, log_start, local_log_start,
        NO_DELETE_STATE if delete_state is None else delete_state, delete_offset, marked_at_ms,
        started, finished, deleted, size,
    )  # fmt: skip
    writer.tagged_fields((*_known_tags(row), *row.unknown_tags))
    value = writer.done()
    _remember(value, row)
    return value


def _known_tags(row: PartitionRow) -> list[tuple[int, bytes]]:
    tags = []
    if row.delete_grace_ms >= 0:
        tags.append((_TAG_DELETE_GRACE, int64_bytes(row.delete_grace_ms)))
    if row.gaps_allowed:
        gaps = Writer()
        gaps.string(row.gaps_allowed)
        tags.append((_TAG_GAPS_ALLOWED, gaps.done()))
    if row.delete_counts_from_ms >= 0:
        tags.append((_TAG_DELETE_COUNTS_FROM, int64_bytes(row.delete_counts_from_ms)))
    if row.reset_cut_at >= 0:
        tags.append((_TAG_RESET_CUT_AT, int64_bytes(row.reset_cut_at)))
    return tags


def decode_partition(value: bytes) -> PartitionRow:
    """Decode a partition's row. CorruptData for a row that `encode_partition` does not write."""
    row = _remembered.get(value)
    if row is None:
        row = _read_row(Reader(value, "partition row"))
        _remember(value, row)
    return row


def _read_row(reader: Reader) -> PartitionRow:
    topic = reader.string()
    mode, mode_offset, has_claim = reader.fields(_MODE)
    if has_claim > 1:
        raise reader.corrupt(f"a boolean is 0 or 1, not {has_claim}")
    claim = _read_claim(reader) if has_claim else None
    voided, reset_stands, log_start, local_log_start, delete_state, *rest = reader.fields(_REST)
    tags = reader.tagged_fields()
    reader.expect_end()
    if mode not in _MODES or delete_state not in _DELETE_STATES or max(voided, reset_stands) > 1:
        raise reader.corrupt(
            f"mode {mode}, delete state {delete_state} and the flags {voided} and {reset_stands} "
            "are not all known"
        )
    row = PartitionRow(
        topic, _MODES[mode], mode_offset, claim, _FLAGS[voided], _FLAGS[reset_stands],
        log_start, local_log_start, _DELETE_STATES[delete_state], *rest,
    )  # fmt: skip
    if not tags:
        return row
    known = dict(tags)
    return row._replace(
        unknown_tags=tuple(each for each in tags if each[0] not in _KNOWN_TAGS),
        delete_grace_ms=_read_natural(known.get(_TAG_DELETE_GRACE), "delete grace"),
        delete_counts_from_ms=_read_natural(known.get(_TAG_DELETE_COUNTS_FROM), "delete grace"),
        reset_cut_at=_read_natural(known.get(_TAG_RESET_CUT_AT), "cut of a reset"),
        gaps_allowed=_read_gaps_allowed(known.get(_TAG_GAPS_ALLOWED)),
    )


def _read_claim(reader: Reader) -> Claim:
    token, epoch, node_id, directory_id, boot_counter, number, time_ms = reader.fields(_CLAIM)
    node = Incarnation(node_id, Uuid(directory_id), boot_counter)
    return Claim(token, epoch, node, number, time_ms)


def _read_gaps_allowed(value: bytes | None) -> str:
    if value is None:
        return ""
    why = value_of(value, "partition row, gaps allowed", Reader.string)
    if not why:
        raise Reader(value, "partition row").corrupt("gaps are allowed without a reason")
    return why


def _read_natural(value: bytes | None, name: str) -> int:
    """Decode a number of 0 or more; -1 for None."""
    if value is None:
        return -1
    found = value_of(value, f"partition row, {name}", Reader.int64)
    if found < 0:
        raise Reader(value, "partition row").corrupt(f"{name} is {found}")
    return found
