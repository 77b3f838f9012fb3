"""Logs that a broker wrote, decoded to what Kafka's consumers read of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_formats import transaction_index
from kafka_formats.record_batch import Record
from pipeline.decode.rows import RowsKind
from tests.capture.captured import LOG_DIR, expected_offsets, expected_records
from tests.pipeline.decode.decoding import BOTH, decode, table

PARTITIONS = sorted(expected_offsets())


def read(rows: RowsKind, partition: str, **options: object) -> list[Record]:
    """The records of all its segments, and so compacted ones, mixed codecs, transactions."""
    start = expected_offsets()[partition].log_start_offset
    batches: list[pa.RecordBatch] = []
    for path in sorted((LOG_DIR / partition).glob("*.log")):
        data = path.read_bytes()
        batches += decode(rows, data, first_offset=start, piece_bytes=4_096, **options)  # type: ignore[arg-type]  # see decode
    found = table(batches)
    return [
        Record(
            row["offset"],
            time,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row, time in zip(
            found.drop_columns("timestamp").to_pylist(),
            [us // 1_000 for us in found["timestamp"].cast(pa.int64()).to_pylist()],
            strict=True,
        )
    ]


@pytest.mark.parametrize("rows", BOTH, ids=lambda rows: rows.__name__)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_decoded_logs_are_what_consumers_read(rows: RowsKind, partition: str) -> None:
    expected = expected_records(partition)
    assert read(rows, partition, read_committed=False) == [each.record for each in expected]
    stable = expected_offsets()[partition].last_stable_offset
    aborted = [
        entry
        for path in sorted((LOG_DIR / partition).glob("*.txnindex"))
        for entry in transaction_index.parse(path.read_bytes(), source=path.name)
    ]
    committed = read(rows, partition, aborted=aborted, last_offset=stable - 1)
    assert committed == [each.record for each in expected if each.committed]
