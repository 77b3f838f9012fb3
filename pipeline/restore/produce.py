"""One partition from the tier into a partition of another cluster, exactly once: a task's work."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa

from kafka_formats.errors import Conflict
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice, cut
from pipeline.restore.kafka_target import (
    KafkaAddress,
    KafkaRecord,
    PartitionWriter,
    Progress,
    read_partition,
)
from rlmm.segment import TopicIdPartition
from rsm_backends.store_config import StoreConfig

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
TRANSACTION_BYTES = 16 * 1024 * 1024
"""Keys and values of one transaction: what a killed restore produces once more."""

RECORD_BYTES = 70
"""What a record takes beside key and value, about: many empty ones fill a transaction too."""

RUNS_MAX = 4_000_000
"""Of the mapping of one partition; 24 bytes each."""


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """What a task restores. `slices` are those of one partition, ascending. Picklable."""

    slices: tuple[SegmentSlice, ...]
    stores: Mapping[str, StoreConfig]
    settings: ReadSettings
    address: KafkaAddress
    producer_settings: Mapping[str, str]
    topic: str
    owner: str

    @property
    def source(self) -> TopicIdPartition:
        """The partition as it was tiered."""
        return self.slices[0].segment.partition

    @property
    def first_offset(self) -> int:
        """Of the source, inclusive."""
        return self.slices[0].first_offset

    @property
    def end_offset(self) -> int:
        """Of the source, exclusive."""
        return self.slices[-1].last_offset + 1

    @property
    def what(self) -> str:
        """Stands beside the progress in the target: only the same restore goes on from there."""
        return (
            f"{self.source.topic} {self.source.topic_id} {self.source.partition} from "
            f"{self.first_offset} to {self.end_offset} {self.settings.isolation.value}"
        )


@dataclass(frozen=True, slots=True)
class Produced:
    """What a run did for one partition. `resumed_from` None: it began at the beginning."""

    partition: int
    records: int
    bytes: int
    resumed_from: int | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The target's partition held against the source, record by record.

    `runs` are triples of int64: source offset, target offset, records; both offsets go on by one
    within a run. `difference` says where source and target part, None that they are the same.
    """

    partition: int
    records: int
    runs: bytes
    difference: str | None

    def mapping(self) -> Iterator[tuple[int, int, int]]:
        """The runs as numbers."""
        numbers = array("q", self.runs)
        return zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)


def produce_partition(work: PartitionRestore) -> Produced:
    """Go on where the target says it is. Conflict: the target holds something else."""
    writer = PartitionWriter(
        work.address, work.topic, work.source.partition, work.owner, work.producer_settings
    )
    try:
        progress = writer.take_over()
        if progress is None:
            # Before the first record, so that what a killed run left is known to be ours.
            writer.commit(Progress(work.first_offset, work.what))
            return _produce(work, writer, work.first_offset, None)
        if progress.what != work.what:
            raise Conflict(
                f"{work.topic}-{work.source.partition} of the target holds a restore of "
                f"{progress.what!r}, not of {work.what!r}: restore into another topic "
                "(--topic-as NAME), or delete this one first",
                reason="ANOTHER_RESTORE",
            )
        return _produce(work, writer, progress.next_offset, progress.next_offset)
    finally:
        writer.close()


def _produce(
    work: PartitionRestore, writer: PartitionWriter, start: int, resumed_from: int | None
) -> Produced:
    records = sent = in_transaction = 0
    slices = [cut(part, start, part.last_offset) for part in work.slices]
    left = [part for part in slices if part.first_offset <= part.last_offset]
    for record in _source_records(work, left):
        writer.send(record)
        size = len(record.key or b"") + len(record.value or b"")
        records += 1
        sent += size
        in_transaction += size + RECORD_BYTES
        if in_transaction >= TRANSACTION_BYTES:
            writer.commit(Progress(record.offset + 1, work.what))
            in_transaction = 0
    if start < work.end_offset:
        writer.commit(Progress(work.end_offset, work.what))
    return Produced(work.source.partition, records, sent, resumed_from)


def compare_partition(work: PartitionRestore) -> Compared:
    """Read both sides, and map the offsets as far as they are the same."""
    runs = array("q")
    records = 0
    ours = _source_records(work, work.slices)
    theirs = read_partition(work.address, work.topic, work.source.partition)
    for wanted, found in zip_longest(ours, theirs):
        difference = _difference(wanted, found)
        if difference is not None:
            return Compared(work.source.partition, records, runs.tobytes(), difference)
        records += 1
        _extend(runs, wanted.offset, found.offset)
    return Compared(work.source.partition, records, runs.tobytes(), None)


def _difference(wanted: KafkaRecord | None, found: KafkaRecord | None) -> str | None:
    if wanted is None:
        return None if found is None else f"the target goes on at its offset {found.offset}"
    if found is None:
        return f"the target ends before the source's offset {wanted.offset}"
    for field in ("timestamp_ms", "key", "value", "headers"):
        if getattr(wanted, field) != getattr(found, field):
            return (
                f"the {field} of the source's offset {wanted.offset} is another at the target's "
                f"offset {found.offset}"
            )
    return None


def _extend(runs: array[int], source: int, target: int) -> None:
    if runs and source == runs[-3] + runs[-1] and target == runs[-2] + runs[-1]:
        runs[-1] += 1
    elif len(runs) < 3 * RUNS_MAX:
        runs.extend((source, target, 1))


def _source_records(
    work: PartitionRestore, slices: list[SegmentSlice] | tuple[SegmentSlice, ...]
) -> Iterator[KafkaRecord]:
    for batch in read_slices(slices, work.stores, work.settings):
        yield from _rows(batch)


def _rows(batch: pa.RecordBatch) -> Iterator[KafkaRecord]:
    columns = (batch.column(name) for name in COLUMNS)
    keys, values, offsets, times, headers = columns
    micros = times.cast(pa.int64()).to_pylist()
    for key, value, offset, micro, pairs in zip(
        keys.to_pylist(),
        values.to_pylist(),
        offsets.to_pylist(),
        micros,
        headers.to_pylist(),
        strict=True,
    ):
        yield KafkaRecord(
            offset,
            micro // 1_000,
            key,
            value,
            tuple((pair["key"], pair["value"]) for pair in pairs or ()),
        )
