"""The columns of records, as in Spark's own Kafka source, and their Arrow types.

Spark accepts only batches of exactly these types: binary with 32-bit offsets, timestamps in
microseconds of UTC, and `element` as the name of a list's items.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_formats.errors import InvalidRequest

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
"""NULL, not empty, for a record without headers."""

TIMESTAMP = pa.timestamp("us", tz="UTC")

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),  # 0: set by the producer, 1: by the broker
    "headers": HEADERS,
}
COLUMNS = tuple(_TYPES)
"""All columns, in the order of Spark's own Kafka source."""


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The schema of these columns, in this order; InvalidRequest for one that does not exist."""
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise InvalidRequest(
            f"no such column: {', '.join(map(repr, unknown))}; choose from {', '.join(COLUMNS)}",
            field="columns",
        )
    if not columns or len(set(columns)) != len(columns):
        raise InvalidRequest(
            f"name each wanted column once, not {list(columns)!r}", field="columns"
        )
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])
