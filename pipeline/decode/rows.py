"""The port between the decoder and the readers of records, with its slice and batch."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from kafka_formats.batch_scan import BatchRun
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader
from rlmm.segment import OFFSET_MAX


class Slice(NamedTuple):
    """The offsets to read, inclusive; `source` is for messages. `unproven`: the first and last
    offset of a log whose bytes are proved only by the batches' own CRCs, which do not cover the
    first offset; None: the log has other checksums.
    """

    topic: str
    partition: int
    source: str
    first_offset: int = 0
    last_offset: int = OFFSET_MAX
    unproven: tuple[int, int] | None = None


class WantedBatch(NamedTuple):
    """A verified batch with records for the reader, and its position in the file."""

    header: BatchHeader
    body: memoryview
    position: int


class Place(NamedTuple):
    """The progress within a run: the number of the next batch, its position in the run, and the
    last offset of the batch before it.
    """

    number: int
    at: int
    passed: int


class Rows(Protocol):
    """Collects the records of batches into Arrow columns. Exhaust each iterator before the next
    call.
    """

    def add(self, batch: WantedBatch) -> Iterator[pa.RecordBatch]:
        """Add a batch's records; returns completed Arrow batches."""

    def add_plain(self, run: BatchRun, place: Place) -> Generator[pa.RecordBatch, None, Place]:
        """Add the batches from `place` on that need no decision: uncompressed, ascending, outside
        transactions, with offsets in the slice. Returns the place after them, which is `place`
        itself for a reader without a faster way.
        """

    def rest(self) -> pa.RecordBatch | None:
        """The remaining rows, or None."""


class RowsKind(Protocol):
    """Makes `Rows`."""

    def __call__(
        self, schema: pa.Schema, wanted: Slice, *, output_bytes: int, records_bytes_max: int
    ) -> Rows: ...


def batch_at(run: BatchRun, place: Place) -> WantedBatch:
    """The batch at this place of a run."""
    header = BatchHeader._make(run.headers[place.number])
    start = place.at
    body = run.data[start + HEADER_BYTES : start + header.size_bytes]
    return WantedBatch(header, body, run.position + start)
