"""What a consumer read of the captured partitions, as rows of the data source."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Row

EXPECTED = Path(__file__).parents[2] / "data" / "kafka-4.3.0" / "expected"

Headers = tuple[tuple[str, bytes | None], ...]


class Captured(NamedTuple):
    """One record; `timestamp_ms` as the broker has it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


def consumed(topic: str, partition: int, *, committed: bool = True) -> list[Captured]:
    """Every record that a consumer of this isolation saw, by offset."""
    data = gzip.decompress((EXPECTED / f"{topic}-{partition}.jsonl.gz").read_bytes())
    found = []
    for line in map(json.loads, data.splitlines()):
        if line["committed"] or not committed:
            headers = tuple((name, _bytes(value)) for name, value in line["headers"])
            found.append(
                Captured(
                    topic,
                    partition,
                    line["offset"],
                    line["timestamp"],
                    _bytes(line["key"]),
                    _bytes(line["value"]),
                    headers or None,
                )
            )
    return sorted(found, key=lambda record: record.offset)


def captured(rows: Iterable[Row]) -> list[Captured]:
    """Rows of the data source with headers, in the order of partition and offset."""
    found = []
    for row in rows:
        headers = row["headers"]
        found.append(
            Captured(
                row["topic"],
                row["partition"],
                row["offset"],
                round(row["timestamp"].timestamp() * 1_000),
                None if row["key"] is None else bytes(row["key"]),
                None if row["value"] is None else bytes(row["value"]),
                None
                if headers is None
                else tuple((one["key"], _plain(one["value"])) for one in headers),
            )
        )
    return sorted(found, key=lambda record: record[:3])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _plain(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
