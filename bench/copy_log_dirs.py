"""Log directories for the copy benchmarks: segments as a broker writes them.

The batches come from five idempotent producers (what Kafka's clients are by default) and hold
incompressible values. One segment is encoded record by record; the others are the same batches with
their base offsets, which stand outside the CRC, moved on. Partitions share files by hard links.
"""

from __future__ import annotations

import random
import struct
from base64 import b64encode
from dataclasses import dataclass, replace
from pathlib import Path

from bench.log_dir_files import begin_log_dir, end_log_dir, segment_file
from kafka_formats import (
    offset_index,
    producer_snapshot,
    time_index,
)
from kafka_formats.compression import Codec
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.record_batch import Record, encode_batch

TOPIC = "orders"
TOPIC_ID = Uuid(b"orders-topic-id!")
PRODUCERS = 5
RECORD_BYTES = 1024
INDEX_INTERVAL_BYTES = 4096
FIRST_TIMESTAMP_MS = 1_700_000_000_000
_HEADER_BYTES = 61
_RECORD_OVERHEAD_BYTES = 12
_TOKEN_BYTES = 72  # of a line of text: with them 45 % of it is random, and zstd halves it
_OFFSET = struct.Struct(">q")
_STATES = ("placed", "paid", "packed", "sent", "received", "returned")


@dataclass(frozen=True, slots=True)
class LogDir:
    """A written log directory: `segments` sealed segments of about `segment_bytes` each."""

    path: Path
    segments: int
    total_bytes: int
    batches_per_segment: int


class _Template:
    """The first segment: its bytes, where its batches begin, its indexes and its producers."""

    def __init__(self, batch_bytes: int, segment_bytes: int, *, text: bool, codec: Codec) -> None:
        # Below two records a batch the records are smaller; four a batch is what small ones have.
        self._count = max(4, batch_bytes // RECORD_BYTES)
        self._value_bytes = (batch_bytes - _HEADER_BYTES) // self._count - _RECORD_OVERHEAD_BYTES
        self._noise = _text(32 << 20) if text else random.Random(7).randbytes(1 << 20)
        self._codec = codec
        self.data = bytearray()
        self.starts: list[tuple[int, int]] = []  # position, base offset
        self.producers: dict[int, ProducerState] = {}
        self.offset_entries: list[tuple[int, int]] = []
        self.time_entries: list[tuple[int, int]] = []
        self.records = 0
        since_entry = 0
        while len(self.data) + batch_bytes <= segment_bytes:
            batch = self._batch()
            position, last = len(self.data), self.records + self._count - 1
            if since_entry > INDEX_INTERVAL_BYTES:
                self.offset_entries.append((last, position))
                self.time_entries.append((FIRST_TIMESTAMP_MS + last, last))
                since_entry = 0
            since_entry += len(batch)
            self.starts.append((position, self.records))
            self.data += batch
            self.records += self._count
        if not self.time_entries or self.time_entries[-1][1] < self.records - 1:
            self.time_entries.append((FIRST_TIMESTAMP_MS + self.records - 1, self.records - 1))

    def _batch(self) -> bytes:
        first, size = self.records, self._value_bytes
        producer_id = 100 + len(self.starts) % PRODUCERS
        before = self.producers.get(producer_id)
        sequence = before.last_sequence + 1 if before else 0
        last = first + self._count - 1
        self.producers[producer_id] = ProducerState(
            producer_id, 0, sequence + self._count - 1, last, self._count - 1,
            FIRST_TIMESTAMP_MS + last, -1, -1,
        )  # fmt: skip
        records = []
        for offset in range(first, last + 1):
            at = offset * 997 % (len(self._noise) - size)
            value = self._noise[at : at + size]
            records.append(Record(offset, FIRST_TIMESTAMP_MS + offset, None, value))
        return encode_batch(
            records,
            base_offset=first,
            codec=self._codec,
            partition_leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def moved_to(self, base_offset: int) -> bytes:
        """The segment's bytes with this base offset."""
        for position, offset in self.starts:
            _OFFSET.pack_into(self.data, position, base_offset + offset)
        return bytes(self.data)

    def snapshot_at(self, base_offset: int) -> bytes:
        """The producer snapshot of the segment with this base offset."""
        if base_offset == 0:
            return producer_snapshot.encode(())
        shift = base_offset - self.records
        return producer_snapshot.encode(
            [
                replace(state, last_offset=state.last_offset + shift)
                for state in self.producers.values()
            ]
        )


def write_log_dir(
    path: Path,
    *,
    batch_bytes: int,
    segment_bytes: int = 128 << 20,
    partitions: int = 4,
    segments: int = 4,
    text: bool = False,
    codec: Codec = Codec.NONE,
) -> LogDir:
    """Write partitions of sealed segments and an empty active one each. `text`: values are like
    JSON and compress to less than half; otherwise they are noise. `batch_bytes` is before
    compression.
    """
    template = _Template(batch_bytes, segment_bytes, text=text, codec=codec)
    bases = [number * template.records for number in range(segments + 1)]
    first = begin_log_dir(path, TOPIC, TOPIC_ID)
    for base in bases[:-1]:
        segment_file(first, base, ".log").write_bytes(template.moved_to(base))
        moved = [(offset + base, position) for offset, position in template.offset_entries]
        segment_file(first, base, ".index").write_bytes(offset_index.encode(moved, base))
        times = [(timestamp, offset + base) for timestamp, offset in template.time_entries]
        segment_file(first, base, ".timeindex").write_bytes(time_index.encode(times, base))
    for base in bases[1:]:
        segment_file(first, base, ".snapshot").write_bytes(template.snapshot_at(base))
    end_log_dir(first, partitions, bases[-1])
    return LogDir(
        path,
        partitions * segments,
        partitions * segments * len(template.data),
        len(template.starts),
    )


def _text(size: int) -> bytes:
    chance = random.Random(7)
    lines = [
        f'{{"order": {chance.randrange(10**9)}, "customer": "{chance.randbytes(8).hex()}", '
        f'"amount": {chance.random() * 1000:.2f}, "state": "{chance.choice(_STATES)}", '
        f'"placed_at": {FIRST_TIMESTAMP_MS + chance.randrange(10**9)}, '
        f'"token": "{b64encode(chance.randbytes(_TOKEN_BYTES)).decode()}"}}'
        for _ in range(size // 200)
    ]
    return "".join(lines).encode()[:size]
