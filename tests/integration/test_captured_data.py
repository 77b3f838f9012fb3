"""Real files of Kafka 4.3.0 parse, and hold what a consumer read from them.

No tool is needed: the files are part of the repository (tests/data/README.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_formats import (
    leader_epoch_checkpoint,
    log_names,
    offset_checkpoint,
    producer_snapshot,
    properties,
    transaction_index,
)
from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.compression import Codec
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.record_batch import Record, iter_records
from kafka_formats.time_index import TimeIndex
from tests.capture.captured import (
    CLUSTER_ID,
    LOG_DIR,
    NODE_ID,
    expected_offsets,
    expected_records,
)

PARTITIONS = sorted(expected_offsets())
every_partition = pytest.mark.parametrize("partition", PARTITIONS)


def segments(partition: str) -> list[tuple[int, Path]]:
    """(base offset, `.log` file), oldest first."""
    paths = sorted((LOG_DIR / partition).glob("*.log"))
    return [(int(path.stem), path) for path in paths]


def batches(path: Path) -> Iterator[ScannedBatch]:
    yield from scan(path.read_bytes(), source=path.name)


def records(partition: str) -> Iterator[tuple[ScannedBatch, Record]]:
    """Every record but control records, from the log start on, with its batch."""
    start = expected_offsets()[partition].log_start_offset
    for _, path in segments(partition):
        for batch in batches(path):
            if not batch.header.is_control:
                for record in iter_records(batch.data, source=path.name, position=batch.position):
                    if record.offset >= start:
                        yield batch, record


def epochs(partition: str) -> leader_epoch_checkpoint.Epochs:
    path = LOG_DIR / partition / "leader-epoch-checkpoint"
    return leader_epoch_checkpoint.parse(path.read_bytes(), source=path.name)


def aborted(partition: str) -> list[transaction_index.AbortedTransaction]:
    return [
        entry
        for path in sorted((LOG_DIR / partition).glob("*.txnindex"))
        for entry in transaction_index.parse(path.read_bytes(), source=path.name)
    ]


@every_partition
def test_decoded_records_are_what_a_consumer_read(partition: str) -> None:
    read = [record for _, record in records(partition)]
    assert read == [expected.record for expected in expected_records(partition)]


@every_partition
def test_the_transaction_index_tells_what_read_committed_saw(partition: str) -> None:
    stable = expected_offsets()[partition].last_stable_offset
    start = expected_offsets()[partition].log_start_offset
    gone, _ = transaction_index.collect(aborted(partition), start, stable)
    committed = [
        record
        for batch, record in records(partition)
        if record.offset < stable
        and not any(
            batch.header.is_transactional
            and entry.producer_id == batch.header.producer_id
            and entry.first_offset <= record.offset < entry.last_offset
            for entry in gone
        )
    ]
    assert committed == [
        expected.record for expected in expected_records(partition) if expected.committed
    ]


@every_partition
def test_batches_ascend_through_all_segments_to_the_log_end(partition: str) -> None:
    next_offset = 0
    for base_offset, path in segments(partition):
        assert base_offset >= next_offset
        for batch in batches(path):
            assert batch.header.base_offset >= max(base_offset, next_offset)
            next_offset = batch.header.last_offset + 1
    assert next_offset == expected_offsets()[partition].log_end_offset


@every_partition
def test_offset_index_entries_point_at_batches_that_hold_the_offset(partition: str) -> None:
    for base_offset, path in segments(partition):
        index_path = path.with_suffix(".index")
        index = OffsetIndex.parse(
            index_path.read_bytes(), base_offset=base_offset, source=index_path.name
        )
        by_position = {batch.position: batch.header for batch in batches(path)}
        for offset, position in index.entries:
            assert by_position[position].base_offset <= offset
            assert index.lookup(offset) == position


@every_partition
def test_the_time_index_of_a_sealed_segment_ends_in_its_largest_timestamp(partition: str) -> None:
    for base_offset, path in segments(partition)[:-1]:
        index_path = path.with_suffix(".timeindex")
        index = TimeIndex.parse(
            index_path.read_bytes(), base_offset=base_offset, source=index_path.name
        )
        assert index.last[0] == max(batch.header.max_timestamp for batch in batches(path))


@every_partition
def test_batches_carry_the_epochs_of_the_checkpoint(partition: str) -> None:
    checkpoint = epochs(partition)
    for _, path in segments(partition):
        for batch in batches(path):
            if batch.header.base_offset >= checkpoint[0].start_offset:
                epoch = leader_epoch_checkpoint.epoch_for_offset(
                    checkpoint, batch.header.base_offset
                )
                assert batch.header.partition_leader_epoch == epoch


@every_partition
def test_producer_snapshots_parse_and_the_last_one_knows_open_transactions(partition: str) -> None:
    offsets = expected_offsets()[partition]
    paths = sorted((LOG_DIR / partition).glob("*.snapshot"))
    parsed = {
        int(path.stem): producer_snapshot.parse(path.read_bytes(), source=path.name)
        for path in paths
    }
    unstable = producer_snapshot.first_unstable_offset(parsed[offsets.log_end_offset])
    assert (offsets.log_end_offset if unstable is None else unstable) == offsets.last_stable_offset


@every_partition
def test_checkpoints_round_trip_to_the_same_bytes(partition: str) -> None:
    path = LOG_DIR / partition / "leader-epoch-checkpoint"
    assert leader_epoch_checkpoint.encode(epochs(partition)) == path.read_bytes()


def test_uncut_partitions_have_four_leader_epochs_and_cut_ones_lost_the_first() -> None:
    assert [entry.epoch for entry in epochs("orders-0")] == [0, 2, 4, 6]
    assert epochs("events-1")[0].epoch > 0
    assert epochs("events-1")[0].start_offset == expected_offsets()["events-1"].log_start_offset


def test_every_codec_occurs_in_the_captured_batches() -> None:
    seen = {batch.header.codec for _, path in segments("codecs-0") for batch in batches(path)}
    assert seen == set(Codec)


def test_compaction_left_gaps_and_tombstones() -> None:
    read = [expected.record for expected in expected_records("profiles-0")]
    assert any(after.offset > before.offset + 1 for before, after in pairwise(read))
    assert any(record.value is None for record in read)


def test_log_append_time_records_carry_their_batch_timestamp() -> None:
    for batch, record in records("events-0"):
        assert batch.header.is_log_append_time
        assert record.timestamp_ms == batch.header.max_timestamp


def test_the_directory_knows_its_cluster_and_its_partitions_know_their_topic_ids() -> None:
    path = LOG_DIR / "meta.properties"
    meta = properties.parse_meta_properties(path.read_bytes(), source=path.name)
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, NODE_ID)
    ids: dict[str, Uuid] = {}
    for name in PARTITIONS:
        directory = log_names.parse_partition_directory(name)
        assert directory is not None
        metadata = LOG_DIR / name / "partition.metadata"
        topic_id = properties.parse_partition_metadata(metadata.read_bytes(), source=metadata.name)
        assert ids.setdefault(directory.topic, topic_id) == topic_id
    assert len(set(ids.values())) == len(ids)


def test_offset_checkpoints_agree_with_the_broker() -> None:
    def read(name: str) -> dict[tuple[str, int], int]:
        return offset_checkpoint.parse((LOG_DIR / name).read_bytes(), source=name)

    high_watermarks = read("replication-offset-checkpoint")
    for name, offsets in expected_offsets().items():
        topic, partition = name.rsplit("-", 1)
        assert high_watermarks[topic, int(partition)] == offsets.log_end_offset
    starts = read("log-start-offset-checkpoint")
    assert starts == {("events", 1): expected_offsets()["events-1"].log_start_offset}
