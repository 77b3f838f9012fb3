"""The columns of exported tables, and the comparison with an existing table. Pure.

Key and value are raw, or decoded by a schema registry's deserialiser; the other columns identify
the record. `day` (the UTC day of the record's timestamp) is a column of tables that are partitioned
by it, but of no data file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from kafka_formats.errors import Conflict
from pipeline.decode.schema import arrow_schema

DAY = "day"
NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType", DAY})
"""Columns that every exported record has."""


def record_schema(key: pa.DataType | None = None, value: pa.DataType | None = None) -> pa.Schema:
    """The columns of data files; `key` and `value` are the types of decoded columns."""
    schema = arrow_schema()
    for name, kind in (("key", key), ("value", value)):
        if kind is not None:
            schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    return schema


def dead_letter_schema() -> pa.Schema:
    """The columns of records that could not be exported: raw bytes, and the error."""
    return arrow_schema().append(pa.field("error", pa.string()))


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """The type of each column, as text that can be compared and kept."""
    return {field.name: str(plain(field.type)) for field in schema}


def check_same(found: Mapping[str, str], wanted: Mapping[str, str], *, table: str) -> None:
    """Raise Conflict(SCHEMA) unless columns and types (see `columns_of`) agree, in any order."""
    differs = [
        f"{name} is {found.get(name, 'missing')} and should be {wanted.get(name, 'absent')}"
        for name in sorted(found.keys() | wanted.keys())
        if found.get(name) != wanted.get(name)
    ]
    if differs:
        raise Conflict(
            f"{table} has a different schema than this export: {'; '.join(differs)}. Nothing was "
            "written: export to a different table, or change this one's schema to match",
            reason="SCHEMA",
        )


def check_takes_null(
    found: pa.Schema, wanted: pa.Schema, *, table: str, but: Collection[str] = ()
) -> None:
    """Raise Conflict(SCHEMA) if a column that may be NULL in `wanted` may not be in `found`, except
    the columns `but`. Otherwise the two schemas are the same.
    """
    fields = (each for each in wanted if each.name not in but)
    strict = [path for each in fields for path in _without_null(found.field(each.name), each)]
    if strict:
        raise Conflict(
            f"{table} can't hold every record: {', '.join(strict)} is NOT NULL there. Nothing was "
            "written: drop NOT NULL, or export to a different table",
            reason="SCHEMA",
        )


def _without_null(found: pa.Field, wanted: pa.Field) -> Iterator[str]:
    """The parts of a column declared stricter than wanted, from the column down to its fields."""
    if wanted.nullable and not found.nullable:
        yield wanted.name
    theirs, ours = found.type, wanted.type
    if pa.types.is_struct(ours):
        pairs = [(theirs.field(each.name), each) for each in ours]
    elif pa.types.is_list(ours) or pa.types.is_large_list(ours):
        pairs = [(theirs.value_field, ours.value_field)]
    elif pa.types.is_map(ours):
        pairs = [(theirs.item_field, ours.item_field)]
    else:
        return
    for there, here in pairs:
        yield from (f"{wanted.name}.{path}" for path in _without_null(there, here))


def check_partitioning(found: str, wanted: str, *, table: str) -> None:
    """Raise Conflict(SCHEMA) unless both partitionings are the same."""
    if found != wanted:
        raise Conflict(
            f"{table} is partitioned by {found or 'nothing'}, but this export by "
            f"{wanted or 'nothing'}: leave the option out or give it, or export to a different "
            "table",
            reason="SCHEMA",
        )


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without the parts that readers of tables choose for themselves: large variants, names
    of list items, nullability.
    """
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if (
        pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    return kind
