"""Brings the rows of a snapshot, sorted by Spark, to the driver, a bounded part at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task


def rows_in_key_order(rows: DataFrame, parts: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of all rows of ROWS_SCHEMA that have a key. The driver holds one of `parts`
    parts, and fetches the next.
    """
    keyed = rows.where("key IS NOT NULL").select("key", "value")
    ordered = keyed.repartitionByRange(parts, "key").sortWithinPartitions("key")
    # A row of Spark takes the driver 8 us; so thousands are packed into one.
    packed = ordered.mapInArrow(SentWork(_packed), "rows binary")
    for (data,) in packed.toLocalIterator(prefetchPartitions=True):
        table = pa.ipc.open_stream(data).read_all()
        yield from zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    begin_task()
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], names=["rows"])
