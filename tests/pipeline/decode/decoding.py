"""How tests feed decoders, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.transaction_index import AbortedTransaction
from pipeline.decode.batch_decoder import BatchDecoder, DecodeLimits, Transactions
from pipeline.decode.kernel_rows import KernelRows
from pipeline.decode.pure_rows import OUTPUT_BYTES, PureRows
from pipeline.decode.rows import RowsKind, Slice
from pipeline.decode.schema import COLUMNS, arrow_schema

BOTH: tuple[RowsKind, ...] = (KernelRows, PureRows)
SOURCE = "orders-3/00000000000000000000.log"


def decode(
    rows: RowsKind,
    data: bytes,
    *,
    columns: Sequence[str] = COLUMNS,
    first_offset: int = 0,
    last_offset: int = 2**62,
    aborted: Iterable[AbortedTransaction] = (),
    read_committed: bool = True,
    output_bytes: int = OUTPUT_BYTES,
    records_bytes_max: int = 1 << 20,
    piece_bytes: int = 1 << 20,
) -> list[pa.RecordBatch]:
    """All batches of `data`, fed in pieces of one reused buffer; each is valid to the last byte."""
    decoder = BatchDecoder(
        columns,
        Slice("orders", 3, SOURCE, first_offset, last_offset),
        transactions=Transactions(aborted, read_committed=read_committed),
        limits=DecodeLimits(output_bytes, records_bytes_max),
        rows=rows,
    )
    buffer = memoryview(bytearray(piece_bytes))
    found: list[pa.RecordBatch] = []
    for at in range(0, len(data), piece_bytes):
        piece = data[at : at + piece_bytes]
        buffer[: len(piece)] = piece
        found += decoder.feed(buffer[: len(piece)])
        buffer[:] = bytes(piece_bytes)
    found += decoder.finish()
    for batch in found:
        batch.validate(full=True)
        assert batch.num_rows
    return found


def table(batches: list[pa.RecordBatch], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """The rows, whatever batches they came in."""
    return pa.Table.from_batches(batches, schema=arrow_schema(columns)).combine_chunks()


def outcome(rows: RowsKind, data: bytes, **options: object) -> pa.Table | str:
    """The rows, or what is said to be wrong."""
    columns = options.get("columns", COLUMNS)
    assert isinstance(columns, tuple)
    try:
        return table(decode(rows, data, **options), columns)  # type: ignore[arg-type]  # see decode
    except (CorruptData, InvalidRequest) as error:
        return str(error)
