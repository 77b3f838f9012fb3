"""Every file of a stock broker's log directory is written again byte for byte from what was read.

That what was read is right is held by `tests/integration/test_captured_data.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_formats import (
    leader_epoch_checkpoint,
    offset_checkpoint,
    offset_index,
    producer_snapshot,
    properties,
    time_index,
    transaction_index,
)
from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.compression import Codec
from kafka_formats.log_names import parse_segment_file_name
from kafka_formats.record_batch import Record, encode_batch, iter_records
from tests.capture.captured import LOG_DIR


def captured_batches() -> Iterator[ScannedBatch]:
    for path in sorted(LOG_DIR.glob("*/*.log")):
        yield from scan(path.read_bytes(), source=str(path))


def records_of(batch: ScannedBatch) -> list[Record]:
    return list(iter_records(batch.data, source="captured", position=batch.position))


def written_again(batch: ScannedBatch) -> bytes:
    header = batch.header
    return encode_batch(
        records_of(batch),
        base_offset=header.base_offset,
        codec=header.codec,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        last_offset=header.last_offset,
    )


def test_batches_are_written_again_with_the_same_records() -> None:
    codecs: set[Codec] = set()
    for batch in captured_batches():
        codecs.add(batch.header.codec)
        again = next(scan(written_again(batch), source="again"))
        assert records_of(again) == records_of(batch)
    assert codecs == set(Codec)


def test_plain_batches_are_written_again_byte_for_byte() -> None:
    # With LogAppendTime the deltas still hold the producer's own times, which nobody is shown; and
    # compaction may have removed the record that the base timestamp is from.
    plain = [
        batch
        for batch in captured_batches()
        if batch.header.codec is Codec.NONE
        and not batch.header.is_log_append_time
        and batch.header.record_count == batch.header.last_offset_delta + 1
    ]
    assert len(plain) > 10
    for batch in plain:
        assert written_again(batch) == bytes(batch.data)


def base_offset_of(path: Path) -> int:
    name = parse_segment_file_name(path.name)
    assert name is not None
    return name[0]


def offset_index_again(path: Path) -> bytes:
    base = base_offset_of(path)
    index = offset_index.OffsetIndex.parse(path.read_bytes(), base_offset=base, source=str(path))
    return offset_index.encode(index.entries, base)


def time_index_again(path: Path) -> bytes:
    base = base_offset_of(path)
    index = time_index.TimeIndex.parse(path.read_bytes(), base_offset=base, source=str(path))
    return time_index.encode(index.entries, base)


def transaction_index_again(path: Path) -> bytes:
    return transaction_index.encode(transaction_index.parse(path.read_bytes(), source=str(path)))


def producer_snapshot_again(path: Path) -> bytes:
    return producer_snapshot.encode(producer_snapshot.parse(path.read_bytes(), source=str(path)))


def leader_epochs_again(path: Path) -> bytes:
    epochs = leader_epoch_checkpoint.parse(path.read_bytes(), source=str(path))
    return leader_epoch_checkpoint.encode(epochs)


def offset_checkpoint_again(path: Path) -> bytes:
    return offset_checkpoint.encode(offset_checkpoint.parse(path.read_bytes(), source=str(path)))


def partition_metadata_again(path: Path) -> bytes:
    topic_id = properties.parse_partition_metadata(path.read_bytes(), source=str(path))
    return properties.encode_partition_metadata(topic_id)


@pytest.mark.parametrize(
    ("pattern", "again"),
    [
        ("*/*.index", offset_index_again),
        ("*/*.timeindex", time_index_again),
        ("*/*.txnindex", transaction_index_again),
        ("*/*.snapshot", producer_snapshot_again),
        ("*/leader-epoch-checkpoint", leader_epochs_again),
        ("*-checkpoint", offset_checkpoint_again),
        ("*/partition.metadata", partition_metadata_again),
    ],
)
def test_files_are_written_again_byte_for_byte(
    pattern: str, again: Callable[[Path], bytes]
) -> None:
    paths = sorted(LOG_DIR.glob(pattern))
    assert paths
    for path in paths:
        assert again(path) == path.read_bytes(), path
