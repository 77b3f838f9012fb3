"""Partition rows field by field: what `rlmm/rows/partitions.py` is held against."""

from __future__ import annotations

from kafka_formats.primitives import Reader, Writer
from rlmm.partition_state import Claim
from rlmm.records.record_fields import Tags, read_incarnation, read_mode, write_incarnation
from rlmm.rows.partitions import (
    _KNOWN_TAGS,
    _TAG_DELETE_COUNTS_FROM,
    _TAG_DELETE_GRACE,
    _TAG_GAPS_ALLOWED,
    _TAG_RESET_CUT_AT,
    NO_DELETE_STATE,
    PartitionRow,
)
from rlmm.segment import PartitionDeleteState


def encode_plainly(row: PartitionRow) -> bytes:
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
    writer.boolean(row.reset_stands)
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
        known = ((_TAG_DELETE_GRACE, _natural(row.delete_grace_ms)),)
    if row.gaps_allowed:
        gaps = Writer()
        gaps.string(row.gaps_allowed)
        known = (*known, (_TAG_GAPS_ALLOWED, gaps.done()))
    if row.delete_counts_from_ms >= 0:
        counts_from = _natural(row.delete_counts_from_ms)
        known = (*known, (_TAG_DELETE_COUNTS_FROM, counts_from))
    if row.reset_cut_at >= 0:
        known = (*known, (_TAG_RESET_CUT_AT, _natural(row.reset_cut_at)))
    writer.tagged_fields((*known, *row.unknown_tags))
    return writer.done()


def _natural(value: int) -> bytes:
    writer = Writer()
    writer.int64(value)
    return writer.done()


def decode_plainly(value: bytes) -> PartitionRow:
    """Any row, field by field. CorruptData: no encoder here wrote it."""
    reader = Reader(value, "partition row")
    row = PartitionRow(
        topic=reader.string(),
        mode=read_mode(reader),
        mode_offset=reader.int64(),
        claim=_read_claim(reader) if reader.boolean() else None,
        claim_voided=reader.boolean(),
        reset_stands=reader.boolean(),
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
        delete_grace_ms=_read_natural(dict(tags).get(_TAG_DELETE_GRACE)),
        delete_counts_from_ms=_read_natural(dict(tags).get(_TAG_DELETE_COUNTS_FROM)),
        gaps_allowed=_read_gaps_allowed(dict(tags).get(_TAG_GAPS_ALLOWED)),
        reset_cut_at=_read_natural(dict(tags).get(_TAG_RESET_CUT_AT)),
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


def _read_natural(value: bytes | None) -> int:
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
