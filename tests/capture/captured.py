"""Reads tests/data/kafka-4.3.0 for tests: where its partitions are, and what a consumer read."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from typing import NamedTuple

from kafka_formats.record_batch import Record
from tests.real.toolbox import REPOSITORY

CAPTURED = REPOSITORY / "tests" / "data" / "kafka-4.3.0"
LOG_DIR = CAPTURED / "log-dir"
CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0Mg"
NODE_ID = 1


class ExpectedRecord(NamedTuple):
    """A record a consumer read, and whether it read it in read_committed as well."""

    record: Record
    committed: bool


class ExpectedOffsets(NamedTuple):
    """The broker's answers for one partition, just before it stopped."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


@cache
def expected_offsets() -> dict[str, ExpectedOffsets]:
    """By partition directory name, as `orders-0`."""
    text = (CAPTURED / "expected" / "partitions.json").read_text()
    return {name: ExpectedOffsets(**offsets) for name, offsets in json.loads(text).items()}


@cache
def expected_records(partition: str) -> tuple[ExpectedRecord, ...]:
    """What a consumer read of `partition` (a directory name), in read_uncommitted order."""
    data = (CAPTURED / "expected" / f"{partition}.jsonl.gz").read_bytes()
    return tuple(_expected(json.loads(line)) for line in gzip.decompress(data).splitlines())


def _expected(line: dict[str, object]) -> ExpectedRecord:
    offset, timestamp, headers = line["offset"], line["timestamp"], line["headers"]
    assert isinstance(offset, int)
    assert isinstance(timestamp, int)
    assert isinstance(headers, list)
    record = Record(
        offset=offset,
        timestamp_ms=timestamp,
        key=_bytes(line["key"]),
        value=_bytes(line["value"]),
        headers=tuple((name, _bytes(value)) for name, value in headers),
    )
    return ExpectedRecord(record, committed=line["committed"] is True)


def _bytes(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text), validate=True)
