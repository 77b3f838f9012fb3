"""Decodes the bytes of a `.log`, in pieces of any size, into Arrow record batches of about 2 MB.

The scanner checks every batch (complete, magic 2, CRC) before its content is believed. This module
decides which batches a reader may see; the compiled kernel reads their records or, if it is not
built, the pure reader of `kafka_formats`, which is slower and the kernel's oracle in tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from kafka_formats.batch_order import BatchOrder
from kafka_formats.batch_scan import BATCH_BYTES_MAX, BatchRun, BatchScanner
from kafka_formats.errors import CorruptData
from kafka_formats.record_batch import LOG_OVERHEAD, TRANSACTIONAL_OR_CONTROL
from kafka_formats.transaction_index import AbortedTransaction
from pipeline.decode.pure_rows import LIMIT, OUTPUT_BYTES, PureRows
from pipeline.decode.rows import Place, RowsKind, Slice, batch_at
from pipeline.decode.schema import arrow_schema
from pipeline.process.compiled import compiled
from rlm.data_plane.read_committed import CommittedView
from rlm.data_plane.transaction_walk import NOTHING_UNDECIDED, Undecided
from rlmm.segment import OFFSET_MAX

RECORDS_BYTES_MAX = 256 << 20
"""Largest batch, as stored and decompressed, unless `maxBatchBytes` sets a different limit. A
worker holds it up to three times.
"""


def rows_kind() -> RowsKind:
    """The compiled kernel if it is built, else the pure reader."""
    if compiled("pipeline.decode.kernel") is None:
        return PureRows
    from pipeline.decode.kernel_rows import KernelRows

    return KernelRows


class Transactions(NamedTuple):
    """The transactions of a slice that a reader has to know."""

    aborted: Iterable[AbortedTransaction] = ()
    undecided: Undecided = NOTHING_UNDECIDED
    read_committed: bool = True


class DecodeLimits(NamedTuple):
    """Bounds of one output batch, and of the records of one batch, stored or decompressed."""

    output_bytes: int = OUTPUT_BYTES
    records_bytes_max: int = RECORDS_BYTES_MAX


class BatchDecoder:
    """Decodes one slice of a segment: the offsets `first_offset` to `last_offset`, inclusive.

    Control records are never returned. With `read_committed`, records of the `aborted` transactions
    (all that touch the slice) and of `undecided` ones are left out, and the undecided are counted.
    `source` and `position`, the position in it of the first byte fed, are for messages. Only
    `columns` are built. Of an unproven log the order of all batches fed is checked, also of those
    after the slice.

    CorruptData, with source and position of the batch, for anything malformed and for offsets that
    do not ascend. InvalidRequest(maxBatchBytes) if a batch has over `records_bytes_max`, stored or
    decompressed; CorruptData instead for a stored batch if `size_bytes` is unknown. Memory is
    bounded by that limit, one batch as stored, and `output_bytes`. `rows` None: see `rows_kind`.
    """

    def __init__(
        self,
        columns: Sequence[str],
        part: Slice,
        *,
        transactions: Transactions = Transactions(),  # noqa: B008 - frozen
        position: int = 0,
        size_bytes: int | None = None,
        limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
        rows: RowsKind | None = None,
    ) -> None:
        self._slice = part
        self._order = None if part.unproven is None else BatchOrder(*part.unproven, part.source)
        aborted, undecided, read_committed = transactions
        self._committed = (
            CommittedView(aborted, OFFSET_MAX, undecided)
            if read_committed
            else CommittedView((), OFFSET_MAX)
        )
        self._scanner = BatchScanner(
            part.source,
            batch_bytes_max=max(limits.records_bytes_max, BATCH_BYTES_MAX),
            position=position,
            size_bytes=size_bytes,
            limit=LIMIT,
        )
        self._rows = (rows or rows_kind())(
            arrow_schema(columns),
            self._slice,
            output_bytes=limits.output_bytes,
            records_bytes_max=limits.records_bytes_max,
        )
        self._passed = -1  # the last offset of the last batch seen
        self._done = part.last_offset < part.first_offset

    @property
    def undecided_records(self) -> int:
        """Number of records left out because the marker of their transaction is lost."""
        return self._committed.undecided_records

    @property
    def done(self) -> bool:
        """True once the slice's end has been passed: more bytes are needed only for the check of
        their order.
        """
        return self._done

    def feed(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        """The rows that `data` completes. Only the start of an incomplete batch is kept of it.

        Exhaust the iterator before the next call, and before the buffer of `data` changes.
        """
        if self._done and self._order is None:
            return
        for run in self._scanner.feed_runs(data):
            if self._order is not None:
                self._order.check(run)
            if not self._done:
                yield from self._read(run)
            if self._done and self._order is None:
                return

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the input and return the remaining rows. CorruptData if the input ends within a batch
        that the slice needs, or in zeros.
        """
        if not self._done:
            self._scanner.finish()
            if self._scanner.ends_in_zeros:
                raise CorruptData(
                    "zeros follow the last batch",
                    source=self._slice.source,
                    position=self._scanner.position,
                )
        rest = self._rows.rest()
        if rest is not None:
            yield rest

    def _read(self, run: BatchRun) -> Iterator[pa.RecordBatch]:
        place = Place(0, 0, self._passed)
        while True:
            place = yield from self._rows.add_plain(run, place)
            if place.number == len(run.headers):
                break
            base_offset, length, _, _, _, attributes, last_delta, *_ = run.headers[place.number]
            if base_offset > self._slice.last_offset:
                self._done = True
                break
            if base_offset <= place.passed:
                raise CorruptData(
                    f"the record batch at offset {base_offset} follows offset {place.passed}",
                    source=self._slice.source,
                    position=run.position + place.at,
                )
            last_offset = base_offset + last_delta
            if last_offset >= self._slice.first_offset:
                batch = batch_at(run, place)
                if not (
                    attributes & TRANSACTIONAL_OR_CONTROL and self._committed.drops(batch.header)
                ):
                    yield from self._rows.add(batch)
            place = Place(place.number + 1, place.at + LOG_OVERHEAD + length, last_offset)
        self._passed = place.passed
