"""Copies a partition from the tier into a partition of another cluster, exactly once, in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice, cut
from pipeline.restore.kafka_target import (
    KafkaAddress,
    KafkaRecord,
    PartitionWriter,
    Progress,
    read_partition,
)
from pipeline.restore.offset_runs import OffsetRuns, unpacked
from pipeline.restore.restore_note import Begun, parse_begun
from rsm_backends.store_config import StoreConfig

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
TRANSACTION_BYTES = 16 * 1024 * 1024
"""Bytes of keys and values in one transaction, which a killed restore produces once more."""

RECORD_BYTES = 70
"""Approximate bytes of a record in addition to key and value: many empty ones fill a transaction,
too.
"""

RUNS_MAX = 4_000_000
"""Runs in the mapping of one partition. Each transaction marker ends a run: a partition with more
runs is mapped only in part, which is reported.
"""


class Since(NamedTuple):
    """The point where a run continued: the next offset of the source, and of the target."""

    source_offset: int
    target_offset: int


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """The work of a task: restore the range `begun` of the partition `source`, as far as the tier
    has it. `slices` are ascending. With `since` only later records are compared. `mapped_bytes_max`
    limits the packed runs that a comparison returns; 0: the offsets are not requested. Picklable.
    """

    source: TopicIdPartition
    begun: Begun
    slices: tuple[SegmentSlice, ...]
    stores: Mapping[str, StoreConfig]
    settings: ReadSettings
    address: KafkaAddress
    producer_settings: Mapping[str, str]
    topic: str
    owner: str
    since: Since | None = None
    mapped_bytes_max: int = 0

    @property
    def is_whole(self) -> bool:
        """True if the tier has the range from its beginning, so that all of it can be compared."""
        return bool(self.slices) and self.slices[0].first_offset == self.begun.first_offset


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of a run for one partition. `resumed` None: it started at the beginning.
    `undecided` counts records left out because the markers of their transactions are lost.
    """

    partition: int
    records: int
    bytes: int
    resumed: Since | None
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of the target's partition with the source, record by record.

    `runs` are the offsets of both sides (`OffsetRuns`), empty if not requested. `difference` is the
    first difference, or None. `unmapped_from`: the runs have reached their limit, and records from
    this source offset on are in none of them; None: they have all records. `offsets_kept`: every
    record has its offset of the source.
    """

    partition: int
    records: int
    runs: bytes
    difference: str | None
    unmapped_from: int | None
    offsets_kept: bool

    def mapping(self) -> Iterator[tuple[int, int, int]]:
        """The runs as numbers: source offset, target offset, records."""
        return unpacked(self.runs) if self.runs else iter(())


def produce_partition(work: PartitionRestore) -> Produced:
    """Continue where the target's progress ends. Conflict if the target has a different restore."""
    writer = PartitionWriter(
        work.address, work.topic, work.source.partition, work.owner, work.producer_settings
    )
    try:
        progress = writer.take_over()
        if progress is None:
            _check_is_whole(work)
            # Committed before the first record, so that a later run recognises the records as ours.
            begin = Progress(work.begun.first_offset, work.begun.text())
            writer.commit(begin)
            return _produce(work, writer, begin, None)
        _check_goes_on(work, progress)
        resumed = Since(progress.next_offset, writer.end_offset())
        return _produce(work, writer, progress, resumed)
    finally:
        writer.close()


def _check_goes_on(work: PartitionRestore, progress: Progress) -> None:
    """Checks the target's progress, now that other writers are fenced: the plan may be outdated."""
    name = f"{work.topic}-{work.source.partition} of the target"
    noted = parse_begun(progress.what)
    if noted is None or not work.begun.goes_on(noted):
        raise Conflict(
            f"{name} holds a restore of {str(noted or progress.what)!r}, not of "
            f"{str(work.begun)!r}: restore into a different topic (--topic-as NAME), or delete "
            "this one first",
            reason="ANOTHER_RESTORE",
        )
    if noted.first_offset != work.begun.first_offset or noted.end_offset != work.begun.end_offset:
        raise RetryLater(f"a run that has just ended began {name} as {noted}: run it again")


def _check_is_whole(work: PartitionRestore) -> None:
    if not work.is_whole:
        raise RetryLater(
            f"{work.topic}-{work.source.partition} of the target was emptied while this run began "
            "to continue it: run it again"
        )


def _produce(
    work: PartitionRestore, writer: PartitionWriter, begin: Progress, resumed: Since | None
) -> Produced:
    records = sent = in_transaction = 0
    undecided: list[int] = []
    slices = _from(work.slices, begin.next_offset)
    for record in _source_records(work, slices, undecided.append):
        writer.send(record)
        size = len(record.key or b"") + len(record.value or b"")
        records += 1
        sent += size
        in_transaction += size + RECORD_BYTES
        if in_transaction >= TRANSACTION_BYTES:
            writer.commit(Progress(record.offset + 1, begin.what))
            in_transaction = 0
    if begin.next_offset < work.begun.end_offset:
        writer.commit(Progress(work.begun.end_offset, begin.what))
    return Produced(work.source.partition, records, sent, resumed, sum(undecided))


def _from(slices: Sequence[SegmentSlice], first_offset: int) -> list[SegmentSlice]:
    cuts = [cut(part, first_offset, part.last_offset) for part in slices]
    return [part for part in cuts if part.first_offset <= part.last_offset]


def compare_partition(work: PartitionRestore) -> Compared:
    """Read both sides, compare records, and map offsets up to the first difference."""
    runs = OffsetRuns(RUNS_MAX, work.mapped_bytes_max) if work.mapped_bytes_max else None
    records = 0
    unmapped_from: int | None = None
    difference: str | None = None
    kept = True
    since = work.since or Since(work.begun.first_offset, 0)
    ours = _source_records(work, _from(work.slices, since.source_offset))
    theirs = read_partition(work.address, work.topic, work.source.partition, since.target_offset)
    for wanted, found in zip_longest(ours, theirs):
        difference = _difference(wanted, found)
        if difference is not None:
            break
        records += 1
        kept = kept and wanted.offset == found.offset
        if runs is not None and not runs.add(wanted.offset, found.offset):
            unmapped_from = wanted.offset if unmapped_from is None else unmapped_from
    packed = b"" if runs is None else runs.packed()
    return Compared(work.source.partition, records, packed, difference, unmapped_from, kept)


def _difference(wanted: KafkaRecord | None, found: KafkaRecord | None) -> str | None:
    if wanted is None:
        return None if found is None else f"the target continues at its offset {found.offset}"
    if found is None:
        return f"the target ends before the source's offset {wanted.offset}"
    for field in ("timestamp_ms", "key", "value", "headers"):
        if getattr(wanted, field) != getattr(found, field):
            return (
                f"the {field} of the source's offset {wanted.offset} differs at the target's "
                f"offset {found.offset}"
            )
    return None


def _source_records(
    work: PartitionRestore,
    slices: Sequence[SegmentSlice],
    on_undecided: Callable[[int], None] | None = None,
) -> Iterator[KafkaRecord]:
    for batch in read_slices(slices, work.stores, work.settings, on_undecided=on_undecided):
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
