"""Builds Arrow columns with the compiled kernel."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NoReturn

import pyarrow as pa

from kafka_formats.batch_scan import BatchRun
from kafka_formats.compression import CompressionError
from kafka_formats.errors import InternalError
from kafka_formats.record_batch import HEADERS_MAX
from pipeline.decode import kernel
from pipeline.decode.pure_rows import (
    OUTPUT_BYTES,
    OUTPUT_ROWS_MAX,
    ROW_BYTES,
    ROW_HEADER_BYTES,
    PureRows,
)
from pipeline.decode.quick_decompress import QuickDecompressor
from pipeline.decode.rows import Place, Slice, WantedBatch, batch_at
from pipeline.decode.schema import HEADER


class KernelRows:
    """Decodes whole batches. A batch that the kernel refuses goes to the pure reader, which raises
    the error, so that both give the same messages.
    """

    def __init__(
        self, schema: pa.Schema, wanted: Slice, *, output_bytes: int, records_bytes_max: int
    ) -> None:
        self._schema = schema
        self._slice = wanted
        self._records_bytes_max = records_bytes_max
        self._columns = kernel.Columns(
            schema.names,
            first_offset=wanted.first_offset,
            last_offset=wanted.last_offset,
            bytes_full=output_bytes,
            rows_max=OUTPUT_ROWS_MAX,
            row_bytes=ROW_BYTES + len(wanted.topic),
            header_bytes=ROW_HEADER_BYTES,
            headers_max=HEADERS_MAX,
            records_bytes_max=records_bytes_max,
            allocate=pa.allocate_buffer,
        )
        self._decompressor = QuickDecompressor()
        self._constants: dict[str, pa.Array] = {}

    def add(self, batch: WantedBatch) -> Iterator[pa.RecordBatch]:
        header, body, _ = batch
        if not header.record_count and not body:
            return
        try:
            records = self._decompressor.decompress(
                header.codec, body, bytes_max=self._records_bytes_max
            )
        except CompressionError:
            self._refuse(batch)
        self._columns.start(
            records,
            count=header.record_count,
            base_offset=header.base_offset,
            last_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
        )
        while (status := self._columns.run()) == kernel.FULL:
            yield self._take()
        if status != kernel.DONE:
            self._refuse(batch)

    def add_plain(self, run: BatchRun, place: Place) -> Generator[pa.RecordBatch, None, Place]:
        status = kernel.FULL
        while status == kernel.FULL:
            status, *fields = self._columns.plain(run.headers, run.data, *place)
            place = Place(*fields)
            if status == kernel.FULL:
                yield self._take()
        if status != kernel.DONE:
            self._refuse(batch_at(run, place))
        return place

    def rest(self) -> pa.RecordBatch | None:
        return self._take() if self._columns.collected() else None

    def _refuse(self, batch: WantedBatch) -> NoReturn:
        judge = PureRows(
            self._schema,
            self._slice,
            output_bytes=OUTPUT_BYTES,
            records_bytes_max=self._records_bytes_max,
        )
        for _ in judge.add(batch):
            pass
        raise InternalError(
            f"the kernel refuses the batch at offset {batch.header.base_offset} of "
            f"{self._slice.source}, but the pure reader accepts it"
        )

    def _take(self) -> pa.RecordBatch:
        rows, headers, found = self._columns.take()
        arrays = []
        for field in self._schema:
            if field.name in ("topic", "partition"):
                arrays.append(self._constant(field, rows))
            elif field.name == "headers":
                nulls, parts = found["headers"]
                pairs = [
                    _array(pa.string(), headers, *found["header key"]),
                    _array(pa.binary(), headers, *found["header value"]),
                ]
                entries = pa.Array.from_buffers(HEADER, headers, [None], 0, children=pairs)
                arrays.append(
                    pa.Array.from_buffers(
                        field.type, rows, _buffers(parts), nulls, children=[entries]
                    )
                )
            else:
                arrays.append(_array(field.type, rows, *found[field.name]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, field: pa.Field, rows: int) -> pa.Array:
        """A column with the same value in each row, made once and sliced."""
        held = self._constants.get(field.name)
        if held is None or len(held) < rows:
            value = self._slice.topic if field.name == "topic" else self._slice.partition
            held = pa.repeat(pa.scalar(value, field.type), rows)
            self._constants[field.name] = held
        return held.slice(0, rows)


def _array(
    type_: pa.DataType, rows: int, nulls: int, parts: tuple[kernel.Part | None, ...]
) -> pa.Array:
    return pa.Array.from_buffers(type_, rows, _buffers(parts), nulls)


def _buffers(parts: tuple[kernel.Part | None, ...]) -> list[pa.Buffer | None]:
    return [None if part is None else part[0].slice(0, part[1]) for part in parts]
