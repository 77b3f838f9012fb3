"""A tier in a folder for benchmarks of reading: partitions of sealed segments of JSON-like values.

The log directory is written as a broker does, one segment record by record and the others with
their base offsets, which stand outside the CRC, moved on. `strandline copy` then tiers it.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.log_dir_files import begin_log_dir, end_log_dir, segment_file
from bench.pipeline_decode import value
from kafka_formats import (
    offset_index,
    producer_snapshot,
    time_index,
)
from kafka_formats.compression import Codec
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch

TOPIC = "readings"
FIRST_TIMESTAMP_MS = 1_700_000_000_000
BATCH_RECORDS = 100
STRANDLINE = str(Path(sys.executable).with_name("strandline"))
_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class TierShape:
    """`segments` of `segment_bytes` of records, uncompressed, in each of `partitions`."""

    codec: Codec
    value_bytes: int = 1024
    partitions: int = 2
    segments: int = 8
    segment_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class FolderTier:
    """A tier in a folder: its place and content. `plain_bytes` are those of the records,
    uncompressed.
    """

    store: str
    records: int
    plain_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class _Segment:
    data: bytearray
    starts: list[tuple[int, int]]  # position, offset
    records: int
    plain_bytes: int


def write_tier(home: Path, shape: TierShape) -> FolderTier:
    """Write the log directory, copy it to a folder, and remove it."""
    segment = _segment(shape)
    log_dir, folder = home / "log-dir", home / "tier"
    _log_dir(log_dir, segment, shape)
    ran = subprocess.run(
        [
            *(STRANDLINE, "copy", "--once", "--json", "--log-dir", str(log_dir)),
            *("--data-dir", str(home / "node"), "--store", f"file://{folder}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"the copy failed: {ran.stdout[-2000:]} {ran.stderr[-2000:]}")
    report = json.loads(ran.stdout[ran.stdout.index("{") :])
    count = shape.partitions * shape.segments
    if len(report["copied"]) != count:
        raise RuntimeError(f"{report['copied']} of {count} segments were copied")
    shutil.rmtree(log_dir)
    shutil.rmtree(home / "node")
    return FolderTier(
        f"file://{folder}",
        count * segment.records,
        count * segment.plain_bytes,
        count * len(segment.data),
    )


def _segment(shape: TierShape) -> _Segment:
    chance = random.Random(7)
    values = [value(shape.value_bytes, chance) for _ in range(10 * BATCH_RECORDS)]
    data, starts, offset, plain = bytearray(), [], 0, 0
    while plain < shape.segment_bytes:
        records = [
            Record(at, FIRST_TIMESTAMP_MS + at, b"key-%010d" % at, values[at * 7 % len(values)])
            for at in range(offset, offset + BATCH_RECORDS)
        ]
        starts.append((len(data), offset))
        batch = encode_batch(
            records, base_offset=offset, codec=shape.codec, partition_leader_epoch=0
        )
        data += batch
        plain += len(encode_batch(records, base_offset=offset)) - HEADER_BYTES
        offset += BATCH_RECORDS
    return _Segment(data, starts, offset, plain)


def _log_dir(path: Path, segment: _Segment, shape: TierShape) -> None:
    first = begin_log_dir(path, TOPIC, Uuid(b"reading-topic-id"))
    end = shape.segments * segment.records
    for base in range(0, end, segment.records):
        for position, offset in segment.starts:
            _OFFSET.pack_into(segment.data, position, base + offset)
        segment_file(first, base, ".log").write_bytes(segment.data)
        entries = [(base + at + BATCH_RECORDS - 1, position) for position, at in segment.starts]
        segment_file(first, base, ".index").write_bytes(offset_index.encode(entries[1:], base))
        times = [(FIRST_TIMESTAMP_MS + at - base, at) for at, _ in entries[1:]]
        segment_file(first, base, ".timeindex").write_bytes(time_index.encode(times, base))
        segment_file(first, base + segment.records, ".snapshot").write_bytes(
            producer_snapshot.encode(())
        )
    end_log_dir(first, shape.partitions, end)
