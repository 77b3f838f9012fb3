"""Builds Arrow columns with the pure reader of `kafka_formats`, for machines without the kernel."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pyarrow as pa

from kafka_formats.batch_scan import BatchRun
from kafka_formats.compression import CompressionError, TooMuchError, decompress
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.record_batch import BatchHeader, Record, decode_records
from pipeline.decode.rows import Place, Slice, WantedBatch

OUTPUT_BYTES = 2 << 20
"""Target size of one Arrow batch. Larger ones make Spark no faster, and from 32 MB on slower; and
the offsets of its columns have 32 bits.
"""

OUTPUT_ROWS_MAX = 1 << 16
ROW_BYTES = 40
"""Bytes counted for a row beside topic, key, value and headers: numbers, and offsets into these."""

LIMIT = "maxBatchBytes"
"""The option that bounds a batch."""

ROW_HEADER_BYTES = 8
"""Bytes counted for a header beside its key and value."""

_US_MAX = 2**63 - 1
_US_MIN = -(2**63)


class PureRows:
    """Decodes batches record by record."""

    def __init__(
        self, schema: pa.Schema, wanted: Slice, *, output_bytes: int, records_bytes_max: int
    ) -> None:
        self._schema = schema
        self._slice = wanted
        self._source = wanted.source
        self._output_bytes = output_bytes
        self._records_bytes_max = records_bytes_max
        self._row_bytes = ROW_BYTES + len(wanted.topic)
        self._bytes = 0
        self._rows = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names}

    def add(self, batch: WantedBatch) -> Iterator[pa.RecordBatch]:
        header = batch.header
        for record in self._records(batch):
            if not self._slice.first_offset <= record.offset <= self._slice.last_offset:
                continue
            self._append(record, header, batch.position)
            if self._bytes >= self._output_bytes or self._rows >= OUTPUT_ROWS_MAX:
                yield self._take()

    def add_plain(self, _run: BatchRun, place: Place) -> Generator[pa.RecordBatch, None, Place]:
        """See `Rows`: takes no batch, since this reader has no faster way."""
        yield from ()
        return place

    def rest(self) -> pa.RecordBatch | None:
        return self._take() if self._rows else None

    def _records(self, batch: WantedBatch) -> Iterator[Record]:
        header, body, position = batch
        if not header.record_count and not body:
            return
        try:
            records = decompress(header.codec, body, bytes_max=self._records_bytes_max)
        except TooMuchError as error:
            raise InvalidRequest(
                f"{self._source} at byte {position}: the batch at offset {header.base_offset} "
                f"is too large ({error}): raise the limit",
                field=LIMIT,
            ) from error
        except CompressionError as error:
            raise CorruptData(
                f"the records of the batch at offset {header.base_offset} are malformed: {error}",
                source=self._source,
                position=position,
            ) from error
        yield from decode_records(records, header, source=self._source, position=position)

    def _append(self, record: Record, header: BatchHeader, position: int) -> None:
        for name, column in self._columns.items():
            match name:
                case "key":
                    column.append(record.key)
                    self._bytes += len(record.key or b"")
                case "value":
                    column.append(record.value)
                    self._bytes += len(record.value or b"")
                case "offset":
                    column.append(record.offset)
                case "timestamp":
                    column.append(self._microseconds(record, position))
                case "timestampType":
                    column.append(int(header.is_log_append_time))
                case "headers":
                    column.append(
                        [{"key": key, "value": value} for key, value in record.headers] or None
                    )
                    self._bytes += sum(
                        ROW_HEADER_BYTES + len(key) + len(value or b"")
                        for key, value in record.headers
                    )
        self._rows += 1
        self._bytes += self._row_bytes

    def _microseconds(self, record: Record, position: int) -> int:
        microseconds = record.timestamp_ms * 1000
        if not _US_MIN <= microseconds <= _US_MAX:
            raise CorruptData(
                f"the timestamp {record.timestamp_ms} of offset {record.offset} is outside Spark's "
                "range: read the topic without the column timestamp",
                source=self._source,
                position=position,
            )
        return microseconds

    def _take(self) -> pa.RecordBatch:
        constant = {"topic": self._slice.topic, "partition": self._slice.partition}
        arrays = []
        for field in self._schema:
            values = self._columns[field.name]
            if field.name in constant:
                arrays.append(pa.repeat(pa.scalar(constant[field.name], field.type), self._rows))
            else:
                arrays.append(pa.array(values, type=field.type))
                values.clear()
        self._rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
