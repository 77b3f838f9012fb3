"""The `.indexes` object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.segment_indexes import SegmentIndexes, build_indexes
from rlm.data_plane.segment_source import SegmentSource
from rlm.data_plane.segment_verification import SegmentVerification
from rlm.format.manifest import CHUNK_BYTES, IndexType, ProducerSnapshotOrigin
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import copy_job, only_partition


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """Two segments with transactions of two producers; the second, at 14, holds an abort."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(5, producer_id=1, transactional=True)
    replica.append(4)
    replica.append(5, producer_id=2, transactional=True)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.end_transaction(2, commit=True)
    replica.append(3)
    replica.new_epoch(4)
    replica.append(3)
    replica.roll()
    return replica


def second_job(replica: ReplicaWriter) -> CopyJob:
    partition = only_partition(replica.log_dir)
    return copy_job(partition, partition.segments[1])


def build(job: CopyJob) -> SegmentIndexes:
    source = SegmentSource(job)
    try:
        verification = SegmentVerification(job, source)
        while verification.read_part(bytearray(CHUNK_BYTES)) is not None:
            pass
        return build_indexes(job, source, verification.result())
    finally:
        source.close()


def part(indexes: SegmentIndexes, index: IndexType) -> bytes:
    found = indexes.ranges[index]
    return indexes.data[found.position : found.position + found.size]


def test_the_parts_are_the_brokers_files_in_aivens_order(replica: ReplicaWriter) -> None:
    indexes = build(second_job(replica))
    assert list(indexes.ranges) == list(IndexType)
    assert part(indexes, IndexType.OFFSET) == replica.path(14, ".index").read_bytes()
    assert part(indexes, IndexType.TIMESTAMP) == replica.path(14, ".timeindex").read_bytes()
    assert part(indexes, IndexType.PRODUCER_SNAPSHOT) == replica.path(22, ".snapshot").read_bytes()
    assert part(indexes, IndexType.TRANSACTION) == replica.path(14, ".txnindex").read_bytes()
    assert b"".join(part(indexes, index) for index in IndexType) == indexes.data
    assert not indexes.txn_index_empty
    assert indexes.producer_snapshot is ProducerSnapshotOrigin.COPIED


def test_the_lineage_is_cut_at_the_next_base(replica: ReplicaWriter) -> None:
    replica.new_epoch(9)
    replica.append(1)
    replica.roll()
    indexes = build(second_job(replica))
    assert part(indexes, IndexType.LEADER_EPOCH) == b"0\n2\n0 0\n4 19\n"


def test_without_aborts_there_is_no_transaction_index(replica: ReplicaWriter) -> None:
    partition = only_partition(replica.log_dir)
    indexes = build(copy_job(partition, partition.segments[0]))
    assert IndexType.TRANSACTION not in indexes.ranges
    assert indexes.txn_index_empty


def test_checksums_are_whole_and_per_chunk() -> None:
    data = bytes(range(256)) * (CHUNK_BYTES // 256) + b"rest"
    checksums = SegmentIndexes(data, {}, ProducerSnapshotOrigin.ABSENT, True).checksums()
    assert checksums.size_bytes == len(data)
    assert checksums.crc32c == crc32c(data)
    assert checksums.chunks == (crc32c(data[:CHUNK_BYTES]), crc32c(b"rest"))


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01damaged-snapshot"])
def test_a_missing_or_damaged_snapshot_is_made_from_the_one_before(
    replica: ReplicaWriter, content: bytes | None
) -> None:
    path = replica.path(22, ".snapshot")
    right = producer_snapshot.parse(path.read_bytes(), source="right")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    indexes = build(second_job(replica))
    made = part(indexes, IndexType.PRODUCER_SNAPSHOT)
    assert indexes.producer_snapshot is ProducerSnapshotOrigin.REBUILT
    assert set(producer_snapshot.parse(made, source="made")) == set(right)


def test_without_any_snapshot_it_is_marked_absent(replica: ReplicaWriter) -> None:
    replica.path(14, ".snapshot").unlink()
    replica.path(22, ".snapshot").unlink()
    indexes = build(second_job(replica))
    assert indexes.producer_snapshot is ProducerSnapshotOrigin.ABSENT
    assert part(indexes, IndexType.PRODUCER_SNAPSHOT) == b""
    assert not indexes.txn_index_empty


def test_a_damaged_transaction_index_is_made_anew(replica: ReplicaWriter) -> None:
    path = replica.path(14, ".txnindex")
    right = path.read_bytes()
    for damaged in (right[:-1], b"\xff" * 34, right.replace(b"\x00\x0e", b"\x00\x0f")):
        path.write_bytes(damaged)
        assert part(build(second_job(replica)), IndexType.TRANSACTION) == right


def test_a_transaction_index_that_misses_an_abort_is_made_anew(replica: ReplicaWriter) -> None:
    replica.append(2, producer_id=1, transactional=True)
    replica.append(2, producer_id=2, transactional=True)
    replica.end_transaction(1, commit=False)
    replica.end_transaction(2, commit=False)
    replica.roll()
    path = replica.path(22, ".txnindex")
    right = path.read_bytes()
    path.write_bytes(right[:34])
    partition = only_partition(replica.log_dir)
    job = copy_job(partition, partition.segments[2])
    assert part(build(job), IndexType.TRANSACTION) == right


def test_aborts_that_are_not_known_for_certain_stop_the_copy(replica: ReplicaWriter) -> None:
    """The snapshot at the base is gone as well: nothing tells where the transaction began."""
    replica.path(14, ".snapshot").unlink()
    replica.path(14, ".txnindex").write_bytes(b"\xff" * 34)
    with pytest.raises(CorruptData, match="ABORT markers") as caught:
        build(second_job(replica))
    assert caught.value.source == str(replica.path(14, ".txnindex"))


def test_a_removed_transaction_index_stops_the_copy(replica: ReplicaWriter) -> None:
    replica.path(14, ".txnindex").unlink()
    job = second_job(replica)
    assert job.txn_index_empty
    with pytest.raises(CorruptData, match="ABORT markers"):
        build(job)


def test_an_index_that_knows_more_than_the_replay_is_trusted(replica: ReplicaWriter) -> None:
    """Its transaction began before a snapshot that was lost and made anew without it."""
    replica.path(14, ".snapshot").write_bytes(producer_snapshot.encode(()))
    indexes = build(second_job(replica))
    entries = transaction_index.parse(part(indexes, IndexType.TRANSACTION), source="t")
    assert [entry.first_offset for entry in entries] == [0]


def test_a_marker_of_a_transaction_without_records_is_no_abort(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(2, producer_id=1)
    replica.end_transaction(1, commit=False)
    replica.roll()
    partition = only_partition(tmp_path)
    assert build(copy_job(partition, partition.segments[0])).txn_index_empty


@pytest.mark.parametrize("entries_left", [0, 1])
def test_an_index_of_a_broker_before_2_8_lists_transactions_without_records(
    tmp_path: Path, entries_left: int
) -> None:
    """Such a broker kept the last snapshots only, so nothing else tells of the base."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(2)  # 0, 1
    replica.roll()
    replica.append(1, producer_id=1)  # 2
    replica.end_transaction(1, commit=False)  # 3: without records
    if entries_left:
        replica.append(1, producer_id=2, transactional=True)  # 4
        replica.end_transaction(2, commit=False)  # 5
    replica.roll()
    replica.path(2, ".snapshot").unlink()
    path = replica.path(2, ".txnindex")
    right = path.read_bytes() if entries_left else b""
    path.write_bytes(transaction_index.encode([AbortedTransaction(1, 3, 3, 4)]) + right)
    indexes = build(second_job(replica))
    assert (part(indexes, IndexType.TRANSACTION), indexes.txn_index_empty) == (right, False)


FIELDS = ("producer_id", "first_offset", "last_offset", "last_stable_offset")


def with_aborts(path: Path) -> ReplicaWriter:
    """A sealed segment at 2, of two aborted transactions; of the second, one batch stands below."""
    replica = ReplicaWriter(write_log_dir(path))
    replica.append(2, producer_id=9, transactional=True)  # 0, 1: aborted at 9
    replica.roll()
    replica.append(1, producer_id=1, transactional=True)  # 2
    replica.end_transaction(1, commit=True)  # 3
    replica.append(2, producer_id=1, transactional=True)  # 4, 5
    replica.append(1)  # 6
    replica.append(1, producer_id=9, transactional=True)  # 7
    replica.end_transaction(1, commit=False)  # 8
    replica.end_transaction(9, commit=False)  # 9
    replica.append(1, producer_id=1, transactional=True)  # 10: open at the end
    replica.roll()
    return replica


@pytest.mark.parametrize("by", [-3, 1, 90])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_wrong_field_of_an_entry_has_the_index_made_anew(
    tmp_path: Path, number: int, field: str, by: int
) -> None:
    replica = with_aborts(tmp_path)
    path = replica.path(2, ".txnindex")
    right = path.read_bytes()
    entries = list(transaction_index.parse(right, source="right"))
    wrong = replace(entries[number], **{field: getattr(entries[number], field) + by})
    entries[number] = wrong
    path.write_bytes(transaction_index.encode(entries))
    assert part(build(second_job(replica)), IndexType.TRANSACTION) == right


def test_an_unknown_version_has_the_index_made_anew(tmp_path: Path) -> None:
    replica = with_aborts(tmp_path)
    path = replica.path(2, ".txnindex")
    right = path.read_bytes()
    path.write_bytes(b"\x00\x01" + right[2:])
    assert part(build(second_job(replica)), IndexType.TRANSACTION) == right


@pytest.mark.parametrize("snapshot", [None, producer_snapshot.encode(())])
def test_without_a_snapshot_at_the_base_an_entry_from_below_is_unverified(
    tmp_path: Path, snapshot: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that finds its snapshots gone writes empty ones: they tell nothing."""
    replica = with_aborts(tmp_path)
    if snapshot is None:
        replica.path(2, ".snapshot").unlink()
    else:
        replica.path(2, ".snapshot").write_bytes(snapshot)
    path = replica.path(2, ".txnindex")
    right = path.read_bytes()
    entries = transaction_index.parse(right, source="right")
    assert part(build(second_job(replica)), IndexType.TRANSACTION) == right
    assert "1 aborted transactions may begin below the segment" in caplog.text
    above = replace(entries[1], first_offset=5)
    path.write_bytes(transaction_index.encode([entries[0], above]))
    if snapshot is None:
        with pytest.raises(
            CorruptData, match="begins at 5, but in the log it does not; there it begins at 7"
        ):
            build(second_job(replica))


@pytest.mark.parametrize("snapshot", [None, b"no snapshot", producer_snapshot.encode(())])
def test_an_abort_without_an_entry_is_unverified_where_its_transaction_may_begin_below(
    tmp_path: Path, snapshot: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that lost its snapshots, too, makes such an index. It looks as if nothing began."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(2, producer_id=1, transactional=True)  # 0, 1
    replica.roll()
    replica.append(1)  # 2
    replica.end_transaction(1, commit=False)  # 3
    replica.roll()
    replica.path(2, ".txnindex").unlink()
    if snapshot is None:
        replica.path(2, ".snapshot").unlink()
    else:
        replica.path(2, ".snapshot").write_bytes(snapshot)
    assert build(second_job(replica)).txn_index_empty
    assert "1 aborted transactions may begin below the segment" in caplog.text


@pytest.mark.parametrize("shown", ["none", "another first offset", "one more"])
def test_a_snapshot_that_shows_other_transactions_open_is_made_anew(
    tmp_path: Path, shown: str
) -> None:
    replica = with_aborts(tmp_path)
    path = replica.path(11, ".snapshot")
    right = producer_snapshot.parse(path.read_bytes(), source="right")
    changes = {"none": (-1, -1), "another first offset": (9, -1), "one more": (10, 0)}[shown]
    wrong = [
        replace(each, current_txn_first_offset=changes[each.producer_id == 9]) for each in right
    ]
    path.write_bytes(producer_snapshot.encode(wrong))
    indexes = build(second_job(replica))
    assert indexes.producer_snapshot is ProducerSnapshotOrigin.REBUILT
    made = part(indexes, IndexType.PRODUCER_SNAPSHOT)
    assert set(producer_snapshot.parse(made, source="made")) == set(right)
    replica.path(2, ".snapshot").unlink()
    if shown != "one more":  # of a producer without a batch in the segment its word has to be taken
        assert build(second_job(replica)).producer_snapshot is ProducerSnapshotOrigin.ABSENT


def test_an_index_of_aborts_that_never_were_becomes_an_empty_one(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(2, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=True)
    replica.roll()
    invented = [AbortedTransaction(1, 0, 2, 3)]
    replica.path(0, ".txnindex").write_bytes(transaction_index.encode(invented))
    partition = only_partition(tmp_path)
    indexes = build(copy_job(partition, partition.segments[0]))
    assert (part(indexes, IndexType.TRANSACTION), indexes.txn_index_empty) == (b"", False)


@pytest.mark.parametrize("removed", [[0], [0, 1], [1], [0, 1, 2]])
def test_what_the_cleaner_leaves_of_an_aborted_transaction_fits(
    tmp_path: Path, removed: list[int]
) -> None:
    """It takes batches and keeps the entry, which says where the transaction once began."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(1, producer_id=2, transactional=True)  # 0
    replica.end_transaction(2, commit=True)  # 1
    for _ in range(3):
        replica.append(1, producer_id=1, transactional=True)  # 2, 3, 4
    replica.append(1, producer_id=2, transactional=True)  # 5
    replica.end_transaction(1, commit=False)  # 6
    replica.end_transaction(2, commit=False)  # 7
    replica.append(1)  # 8
    replica.batches = [each for at, each in enumerate(replica.batches) if at - 2 not in removed]
    replica.roll()
    partition = only_partition(tmp_path)
    job = copy_job(partition, partition.segments[0])
    path = replica.path(0, ".txnindex")
    right = path.read_bytes()
    assert part(build(job), IndexType.TRANSACTION) == right
    first, second = transaction_index.parse(right, source="right")
    hides_committed = replace(second, first_offset=0)
    ends_the_search_early = replace(first, last_stable_offset=99)
    for wrong in ([first, hides_committed], [ends_the_search_early, second]):
        path.write_bytes(transaction_index.encode(wrong))
        made = transaction_index.parse(part(build(job), IndexType.TRANSACTION), source="made")
        assert made[-1] == second
        assert all(each.last_stable_offset in (5, 8) for each in made)


def test_a_damaged_lineage_in_the_job_is_corrupt_data(replica: ReplicaWriter) -> None:
    with pytest.raises(CorruptData, match="lineage of the copy job"):
        build(replace(second_job(replica), lineage_checkpoint=b"0\n5\n"))
