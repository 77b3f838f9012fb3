"""Producer state carried forward gives what the broker itself wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.batch_scan import BatchRun, BatchScanner
from kafka_formats.control_record import ControlType, control_key
from kafka_formats.errors import CorruptData
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane.producer_replay import ProducerReplay
from rlm.local_log.log_dir import LocalPartition, find_partitions
from tests.kafka_formats.transaction_markers import end_transaction_value
from tests.rlm.broker_files import CAPTURED, ReplicaWriter, write_log_dir


def replayed(
    log: bytes, producers: tuple[ProducerState, ...] = (), start_offset: int = 0
) -> ProducerReplay:
    replay = ProducerReplay(producers, start_offset)
    for run in BatchScanner("log").feed_runs(log):
        replay.take(run, "log")
    return replay


def snapshot(partition: LocalPartition, offset: int) -> tuple[ProducerState, ...]:
    path = partition.directory / f"{offset:020}.snapshot"
    return producer_snapshot.parse(path.read_bytes(), source=str(path)) if offset else ()


@pytest.mark.parametrize("topic", ["orders", "codecs", "payments"])
def test_captured_snapshots_and_transaction_indexes_come_out_the_same(topic: str) -> None:
    for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions:
        if partition.partition.topic != topic:
            continue
        for segment in partition.segments[:-1]:
            assert segment.next_base_offset is not None
            replay = replayed(
                segment.log_path.read_bytes(),
                snapshot(partition, segment.base_offset),
                segment.base_offset,
            )
            written = snapshot(partition, segment.next_base_offset)
            # The broker forgets what expired when it starts; a replay has nothing to expire by.
            assert set(replay.producers) >= set(written)
            assert topic == "orders" or len(replay.producers) == len(written)
            index = segment.log_path.with_suffix(".txnindex")
            data = index.read_bytes() if index.exists() else b""
            assert replay.transactions.made() == transaction_index.parse(data, source="captured")
            assert replay.transactions.open == producer_snapshot.open_transactions(written)


def test_interleaved_transactions_are_told_apart(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(2, producer_id=1, transactional=True)
    replica.append(3, producer_id=2, transactional=True)
    replica.append(1)
    replica.append(2, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=False)
    replica.end_transaction(2, commit=False)
    replica.flush()
    replay = replayed(replica.path(0, ".log").read_bytes())
    assert replay.transactions.made() == (
        AbortedTransaction(1, 0, 8, 2),
        AbortedTransaction(2, 2, 9, 10),
    )
    assert set(replay.producers) == set(replica.producers.values())


def marker(offset: int, *, key: bytes, value: bytes | None, epoch: int = 0) -> bytes:
    return encode_batch(
        [Record(offset, 1_000, key, value)],
        base_offset=offset,
        producer_id=1,
        producer_epoch=epoch,
        transactional=True,
        control=True,
    )


ABORT = control_key(ControlType.ABORT)
OPEN = ProducerState(1, 0, 9, 9, 9, 900, 3, 0)


def test_a_marker_of_a_later_producer_epoch_forgets_the_earlier_batches() -> None:
    replay = replayed(marker(10, key=ABORT, value=end_transaction_value(4), epoch=1), (OPEN,))
    assert replay.producers == (ProducerState(1, 1, -1, -1, 0, 1_000, 4, -1),)
    assert replay.transactions.made() == (AbortedTransaction(1, 0, 10, 11),)


def test_a_marker_without_a_transaction_aborts_nothing() -> None:
    replay = replayed(marker(10, key=ABORT, value=end_transaction_value(4)))
    assert replay.transactions.made() == ()
    (wrong,) = replay.transactions.differences([AbortedTransaction(1, 0, 10, 11)], cleaned=False)
    assert "begins at 0, but in the log it does not" in wrong
    assert replay.producers == (ProducerState(1, 0, -1, -1, 0, 1_000, 4, -1),)


def test_control_records_of_other_types_end_nothing() -> None:
    replay = replayed(marker(10, key=control_key(77), value=b""), (OPEN,))
    assert replay.producers == (OPEN,)


def test_a_marker_that_compaction_removed_ends_its_transaction() -> None:
    batch = encode_batch(
        [],
        base_offset=10,
        last_offset=10,
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    (run,) = BatchScanner("log").feed_runs(batch)
    for producers in ((OPEN,), ()):
        replay = ProducerReplay(producers)
        replay.take(run, "log")
        assert all(state.current_txn_first_offset == -1 for state in replay.producers)
        assert replay.transactions.made() == ()


def test_a_cut_off_marker_is_corrupt_data() -> None:
    for value in (None, b"\x00"):
        (run,) = BatchScanner("log").feed_runs(marker(10, key=ABORT, value=value))
        with pytest.raises(CorruptData, match="cut off"):
            ProducerReplay(()).take(run, "log")


def test_sequences_wrap_at_the_end_of_int32() -> None:
    batch = encode_batch(
        [Record(offset, 0, None, None) for offset in range(3)],
        base_offset=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=2**31 - 2,
    )
    assert replayed(batch).producers[0].last_sequence == 0


def test_a_batch_without_a_sequence_has_none() -> None:
    batch = encode_batch([Record(0, 0, None, None)], base_offset=0, producer_id=1, producer_epoch=0)
    assert replayed(batch).producers[0].last_sequence == -1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 3), st.sampled_from("pptca")), max_size=30),
    st.integers(1, 2000),
)
def test_batches_in_runs_leave_what_one_after_another_leaves(
    steps: list[tuple[int, str]], piece_bytes: int
) -> None:
    """Plain, transactional, commit and abort, of several producers, cut anywhere."""
    log = bytearray()
    for offset, (producer, what) in enumerate(steps):
        if what in "ca" and producer >= 0:
            key = control_key(ControlType.COMMIT if what == "c" else ControlType.ABORT)
            record = Record(offset, offset, key, end_transaction_value(7))
        else:
            record = Record(offset, offset, b"key", b"value")
        log += encode_batch(
            [record],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=offset if producer >= 0 else -1,
            transactional=what != "p" and producer >= 0,
            control=what in "ca" and producer >= 0,
        )
    single, runs = ProducerReplay(()), ProducerReplay(())
    for each in BatchScanner("log").feed(log):
        single.take(BatchRun([each.header], each.position, memoryview(each.data)), "log")
        assert single.producers is not None  # looking settles what was left out
    scanner = BatchScanner("log")
    for at in range(0, len(log), piece_bytes):
        for run in scanner.feed_runs(bytes(log[at : at + piece_bytes])):
            runs.take(run, "log")
    assert runs.producers == single.producers
    assert runs.transactions.made() == single.transactions.made()
    assert runs.transactions.open == single.transactions.open
