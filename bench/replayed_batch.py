"""A data source of Spark that gives one Arrow batch again and again: the ceiling of transport.

What any data source in Python can reach at most: nothing is read and nothing decoded, the rest is
Spark's: from the Python process through a socket to the rows of the JVM. Where a worker was spared
the search for garbage among its modules (`pipeline.spark.worker_garbage`), this source is as well,
unless it is asked for workers as Spark has them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafka_formats.record_batch import Record, encode_batch
from pipeline.decode.batch_decoder import BatchDecoder
from pipeline.decode.pure_rows import OUTPUT_BYTES
from pipeline.decode.rows import Slice
from pipeline.decode.schema import COLUMNS
from pipeline.source.data_source import spark_schema
from pipeline.spark.worker_garbage import begin_task

NAME = "replayed-batch"
FULL = tuple(name for name in COLUMNS if name != "headers")


class ReplayedBatch(DataSource):
    """Options: `rows`, `tasks`, `value-bytes`; `spared` false: workers as Spark has them."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def schema(self) -> StructType:
        """The schema of records without headers."""
        return spark_schema(FULL)

    def reader(self, schema: StructType) -> ReplayedReader:  # noqa: ARG002  the port
        """The reader of any query."""
        options = self.options
        return ReplayedReader(
            int(options["rows"]),
            int(options["tasks"]),
            int(options["value-bytes"]),
            spared=options["spared"] == "true",
        )


class ReplayedReader(DataSourceReader):
    """Gives the batch in the task, made by the decoder: so it is what the decoder gives."""

    def __init__(self, rows: int, tasks: int, value_bytes: int, *, spared: bool) -> None:
        self._rows, self._tasks, self._value_bytes = rows, tasks, value_bytes
        self._spared = spared

    def partitions(self) -> list[InputPartition]:
        """The partitions, with as many rows in each."""
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batch, and in the end a part of it."""
        if self._spared:
            begin_task()
        else:
            gc.unfreeze()
        batch, left = _batch(self._value_bytes), int(partition.value)
        while left:
            part = batch.slice(0, min(left, batch.num_rows))
            left -= part.num_rows
            yield part


@cache
def _batch(value_bytes: int) -> pa.RecordBatch:
    """Made once a worker: it takes 30 ms, which is not transport."""
    count = 2 * OUTPUT_BYTES // value_bytes
    records = [Record(at, at, b"key-%010d" % at, bytes(value_bytes)) for at in range(count)]
    decoder = BatchDecoder(FULL, Slice("readings", 0, "made up"))
    return next(decoder.feed(memoryview(encode_batch(records, base_offset=0))))
