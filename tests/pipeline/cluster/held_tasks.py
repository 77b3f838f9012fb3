"""What runs in tasks of `held_jobs`, and imports no more than tasks of jobs do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

import pyarrow as pa

from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.restore import produce
from pipeline.restore.kafka_target import KafkaRecord, PartitionWriter, Progress
from rsm_backends.store_config import StoreConfig
from tests.pipeline.cluster.driver import DEADLINE_S, hold

TRANSACTION_BYTES = 16_384
SENT_BEFORE_THE_HOLD = 3


def held_read(
    slices: Iterable[SegmentSlice],
    stores: Mapping[str, StoreConfig],
    settings: ReadSettings,
    *,
    signals: str,
    part: str,
) -> Iterator[pa.RecordBatch]:
    """Stands still behind the first records: a file has been begun."""
    for number, batch in enumerate(read_slices(slices, stores, settings)):
        yield batch
        if number == 0:
            hold(signals, part)


@dataclass(frozen=True)
class HeldWork:
    """Stands still when all is done, and nobody has been told."""

    work: Callable[[Any], Any]
    signals: str

    def __call__(self, item: Any) -> Any:
        done = self.work(item)
        hold(self.signals, "scrub")
        return done


@dataclass(frozen=True)
class HeldBatches:
    """In place of a function over batches: stands still behind the last one of a task."""

    signals: str
    part: str | None
    module: str
    name: str
    arguments: tuple[Any, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # By its name: in the driver, which pickles this, something else stands there.
        original = getattr(import_module(self.module), self.name)
        yield from original(*self.arguments)(batches)
        if self.part is not None:
            hold(self.signals, self.part)


def held_produce(work: produce.PartitionRestore, *, signals: str) -> produce.Produced:
    """In place of `produce_partition`: stands still with records sent that are not committed,
    behind others that are.
    """
    writer = partial(HeldWriter, signals)
    with (
        mock.patch.object(produce, "TRANSACTION_BYTES", TRANSACTION_BYTES),
        mock.patch.object(produce, "PartitionWriter", writer),
    ):
        return produce.produce_partition(work)


class HeldWriter(PartitionWriter):
    """See `held_produce`."""

    def __init__(self, signals: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._signals = signals
        self._commits = self._sent = 0

    def commit(self, progress: Progress) -> None:
        super().commit(progress)
        self._commits += 1

    def send(self, record: KafkaRecord) -> None:
        super().send(record)
        self._sent += self._commits > 1  # the first one is there before any record
        if self._sent == SENT_BEFORE_THE_HOLD:
            self._producer.flush(DEADLINE_S)
            hold(self._signals, "restore")
