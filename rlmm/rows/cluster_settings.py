"""Encodes and decodes rows of the cluster's settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_formats.errors import CorruptData
from kafka_formats.primitives import Reader, Writer
from rlmm.records.record_fields import Tags
from rlmm.records.setting_scope import ScopeKind, SettingScope
from rlmm.rows import keys
from rlmm.rows.rows import RowReader, prefix_end

VERSION = 0
_SOURCE = "cluster setting row"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting in force: set at metadata offset `offset`, at `set_ms` (record time)."""

    scope: SettingScope
    key: str
    value: str
    who: str
    why: str
    offset: int
    set_ms: int
    unknown_tags: Tags = ()


def setting_key(key: str, scope: SettingScope) -> bytes:
    return keys.cluster_setting_key(key, scope.kind, scope.name)


def encode_setting(row: SettingRow) -> bytes:
    """Encode all fields but scope and key, which are in the row's key."""
    writer = Writer()
    writer.int16(VERSION)
    for text in (row.value, row.who, row.why):
        writer.string(text)
    writer.int64(row.offset)
    writer.int64(row.set_ms)
    writer.tagged_fields(row.unknown_tags)
    return writer.done()


def decode_setting(key: bytes, value: bytes) -> SettingRow:
    """Decode a setting's row. CorruptData for a row that `encode_setting` does not write."""
    reader = Reader(value, _SOURCE)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"version {version} is unknown, this program reads {VERSION}")
    texts = (reader.string(), reader.string(), reader.string())
    offset, set_ms, tags = reader.int64(), reader.int64(), reader.tagged_fields()
    reader.expect_end()
    try:
        name, kind, of = keys.fields_of_cluster_setting_key(key)
        scope = SettingScope(ScopeKind(kind), of)
    except (ValueError, IndexError):
        raise CorruptData(f"{key.hex()} is no setting's key", source=_SOURCE, position=0) from None
    return SettingRow(scope, name, *texts, offset, set_ms, tags)


def find_setting(rows: RowReader, key: str, scope: SettingScope) -> SettingRow | None:
    """The setting of this scope alone; None if it has none."""
    row_key = setting_key(key, scope)
    value = rows.get(row_key)
    return None if value is None else decode_setting(row_key, value)


def all_settings(rows: RowReader) -> tuple[SettingRow, ...]:
    """Every setting, ordered by key, kind of scope and name."""
    return tuple(decode_setting(*row) for row in _scan(rows))


def number_of_settings(rows: RowReader) -> int:
    """The number of settings in force, without decoding them."""
    return sum(1 for _ in _scan(rows))


def _scan(rows: RowReader) -> Iterator[tuple[bytes, bytes]]:
    prefix = keys.CLUSTER_SETTINGS_PREFIX
    return rows.scan(prefix, prefix_end(prefix))
