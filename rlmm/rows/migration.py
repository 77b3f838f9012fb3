"""Rows of the move from Kafka's metadata topic: its phase, the brokers that acknowledged it, and
open imports. Pure.

An import is open until a partition's last record is applied; its row has the number of segments
imported so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kafka_formats.primitives import Reader, Writer
from rlmm.migration_phase import NO_MIGRATION, RECORDED_PHASES, Migration
from rlmm.rows import keys, values
from rlmm.rows.rows import RowReader, prefix_end

VERSION = 0


def encode_migration(migration: Migration) -> bytes:
    writer = Writer()
    writer.int16(VERSION)
    writer.int8(migration.phase)
    writer.int64(migration.since)
    writer.int64(migration.since_ms)
    for text in (migration.kafka_cluster_id, migration.who, migration.why):
        writer.string(text)
    writer.tagged_fields(())
    return writer.done()


@lru_cache(maxsize=16)
def decode_migration(value: bytes) -> Migration:
    """Decode the row of the move. CorruptData for a row that `encode_migration` does not write."""
    reader = Reader(value, "migration row")
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"version {version} is unknown, this program reads {VERSION}")
    phase = RECORDED_PHASES.get(number := reader.int8())
    if phase is None:
        raise reader.corrupt(f"unknown phase {number} of a move")
    since, since_ms = reader.int64(), reader.int64()
    cluster_id, who, why = reader.string(), reader.string(), reader.string()
    if reader.tagged_fields():
        raise reader.corrupt("tagged fields, and none is known")
    reader.expect_end()
    return Migration(phase, since, cluster_id, who, why, since_ms)


def find_migration(rows: RowReader) -> Migration:
    """The phase in force; NONE without a record."""
    value = rows.get(keys.MIGRATION_KEY)
    return NO_MIGRATION if value is None else decode_migration(value)


def acknowledged(rows: RowReader, since: int) -> frozenset[int]:
    """Ids of the brokers that acknowledged the phase that began at this metadata offset."""
    prefix = keys.MIGRATION_ACKNOWLEDGED_PREFIX
    return frozenset(
        keys.node_of(key)
        for key, value in rows.scan(prefix, prefix_end(prefix))
        if values.decode_offset(value) == since
    )


def acknowledged_from(rows: RowReader, since: int) -> frozenset[int]:
    """Ids of the brokers that acknowledged the phase that began at this metadata offset, or a later
    one.
    """
    prefix = keys.MIGRATION_ACKNOWLEDGED_PREFIX
    return frozenset(
        keys.node_of(key)
        for key, value in rows.scan(prefix, prefix_end(prefix))
        if values.decode_offset(value) >= since
    )


def open_imports(rows: RowReader) -> Iterator[bytes]:
    """The keys of open imports, ascending."""
    return (key for key, _ in rows.scan(keys.IMPORTING_PREFIX, keys.IMPORTING_END))
