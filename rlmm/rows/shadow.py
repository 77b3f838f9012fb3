"""Encodes and decodes rows of the shadow: its state, the positions in the topic, and the outbox.
Pure.

Values come from disks and from other nodes' snapshots: decoding raises CorruptData for bytes that
no encoder here wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from kafka_formats.errors import CorruptData
from kafka_formats.primitives import Reader, Writer
from rlmm.metadata_shadow import OutboxRow, Shadow, TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.rows import keys
from rlmm.rows.migration import find_migration
from rlmm.rows.reads import read_restart
from rlmm.rows.rows import RowReader, prefix_end, read_decoded

VERSION = 0
KEPT_UP_PHASES = frozenset({MigrationPhase.QUORUM, MigrationPhase.BACK})
"""The phases in which the topic is kept up to date with the metadata log."""
RESTARTED = "the metadata was restarted from a snapshot since the switch"
_TIME = struct.Struct(">q")
_POSITION = struct.Struct(">qq")


def encode_shadow(shadow: Shadow) -> bytes:
    writer = Writer()
    writer.int16(VERSION)
    writer.int64(shadow.begun)
    writer.uuid(shadow.topic_id)
    writer.int32(shadow.partitions)
    writer.int64(shadow.written_up_to)
    writer.int64(shadow.rows)
    writer.string(shadow.incomplete)
    writer.string(shadow.foreign)
    writer.tagged_fields(())
    return writer.done()


def decode_shadow(value: bytes) -> Shadow:
    reader = Reader(value, "shadow row")
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"version {version} is unknown, this program reads {VERSION}")
    begun, topic_id, partitions = reader.int64(), reader.uuid(), reader.int32()
    written_up_to, rows = reader.int64(), reader.int64()
    incomplete, foreign = reader.string(), reader.string()
    if reader.tagged_fields():
        raise reader.corrupt("tagged fields, and none is known")
    reader.expect_end()
    return Shadow(begun, topic_id, partitions, written_up_to, rows, incomplete, foreign)


def encode_position(position: TopicPosition) -> bytes:
    return _POSITION.pack(position.next_offset, position.last)


def decode_position(partition: int, value: bytes) -> TopicPosition:
    if len(value) != _POSITION.size:
        raise CorruptData(
            f"{len(value)} bytes, where such a row has {_POSITION.size}", source="position row"
        )
    return TopicPosition(partition, *_POSITION.unpack(value))


def encode_outbox(time_ms: int, value: bytes) -> bytes:
    return _TIME.pack(time_ms) + value


def decode_outbox(offset: int, value: bytes) -> OutboxRow:
    if len(value) < _TIME.size:
        raise CorruptData("the row is cut off", source="outbox row")
    return OutboxRow(offset, _TIME.unpack_from(value)[0], value[_TIME.size :])


def find_shadow(rows: RowReader) -> Shadow | None:
    """The state of the shadow; None if no switch has begun, or the move is over. If the metadata
    log was restarted from a snapshot since the switch, it may lack records that are in the topic:
    then the shadow is incomplete.
    """
    shadow = read_decoded(rows, keys.SHADOW_KEY, decode_shadow)
    if shadow is None or shadow.incomplete:
        return shadow
    restart = read_restart(rows)
    if restart is None or restart.offset <= shadow.begun:
        return shadow
    return replace(shadow, incomplete=RESTARTED)


def is_kept_up(rows: RowReader) -> bool:
    """True while changes of delegated partitions must also be written to the topic."""
    return find_migration(rows).phase in KEPT_UP_PHASES


def topic_positions(rows: RowReader) -> Iterator[TopicPosition]:
    """The positions in the topic, by partition."""
    prefix = keys.SHADOW_POSITION_PREFIX
    for key, value in rows.scan(prefix, prefix_end(prefix)):
        yield decode_position(keys.partition_of_shadow_position_key(key), value)


def find_position(rows: RowReader, partition: int) -> TopicPosition | None:
    value = rows.get(keys.shadow_position_key(partition))
    return None if value is None else decode_position(partition, value)


def outbox_rows(rows: RowReader) -> Iterator[OutboxRow]:
    """The changes that wait to be written, ascending."""
    prefix = keys.SHADOW_OUTBOX_PREFIX
    for key, value in rows.scan(prefix, prefix_end(prefix)):
        yield decode_outbox(keys.offset_of_shadow_outbox_key(key), value)


def find_outbox_row(rows: RowReader, offset: int) -> OutboxRow | None:
    value = rows.get(keys.shadow_outbox_key(offset))
    return None if value is None else decode_outbox(offset, value)
