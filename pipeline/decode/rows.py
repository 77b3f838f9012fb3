"""What stands between the decoder and what reads records: a slice, a batch, and the port."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from kafka_formats.batch_scan import BatchRun
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader


class Slice(NamedTuple):
    """What is read: offsets are inclusive; `source` is for messages."""

    topic: str
    partition: int
    source: str
    first_offset: int
    last_offset: int


class WantedBatch(NamedTuple):
    """A verified batch with records for the reader, and where it stands in the file."""

    header: BatchHeader
    body: memoryview
    position: int


class Place(NamedTuple):
    """Where reading a run has come to: the number of the next batch, where it starts, and the
    last offset of the one before it.
    """

    number: int
    at: int
    passed: int


class Rows(Protocol):
    """Collects the records of batches into Arrow columns. Exhaust each iterator before the next
    call.
    """

    def add(self, batch: WantedBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch's records, and give what is complete."""
        ...

    def add_plain(self, run: BatchRun, place: Place) -> Generator[pa.RecordBatch, None, Place]:
        """The same of the batches at `place` that need no decision: uncompressed, outside
        transactions, ascending, with offsets in the slice. Returns the place behind them, which is
        `place` itself for a reader that has no quicker way with them.
        """
        ...

    def rest(self) -> pa.RecordBatch | None:
        """What is left, None if nothing is."""
        ...


class RowsKind(Protocol):
    """Makes them."""

    def __call__(
        self, schema: pa.Schema, wanted: Slice, *, output_bytes: int, records_bytes_max: int
    ) -> Rows: ...


def batch_at(run: BatchRun, place: Place) -> WantedBatch:
    """The batch that comes next in a run."""
    header = BatchHeader._make(run.headers[place.number])
    start = place.at
    body = run.data[start + HEADER_BYTES : start + header.size_bytes]
    return WantedBatch(header, body, run.position + start)
