"""Snapshot files: named by Kafka's rule, complete or not there, equal for equal rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from kafka_formats.compression import Codec
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import Record, encode_batch, iter_records
from rlmm.log import snapshot_files
from rlmm.log.disk import remove_files
from rlmm.log.quorum_records import Voter, encode_snapshot_header
from rlmm.log.snapshot_files import (
    BATCH_BYTES_TARGET,
    PART_SUFFIX,
    SnapshotWriter,
    check_snapshot,
    list_snapshots,
    parse_snapshot_file_name,
    read_snapshot,
    snapshot_batches,
    snapshot_file_name,
    snapshot_voters,
    write_bootstrap_snapshot,
)
from rlmm.metadata_log import Proposal, SnapshotId
from tests.rlmm.log.crash_disk import CrashDisk

DIRECTORY = Path("/data")
SNAPSHOT = SnapshotId(42, 3)
VOTERS = (Voter(1, Uuid(b"directory-one...")),)
ROWS = [Proposal(1100, b"a" * 100)] * 3 + [Proposal(None, b"b" * 100)] * 2 + [Proposal(1100, b"c")]


@pytest.fixture
def disk() -> CrashDisk:
    disk = CrashDisk()
    disk.make_directory(DIRECTORY)
    return disk


def begin(disk: CrashDisk, snapshot: SnapshotId = SNAPSHOT) -> SnapshotWriter:
    return SnapshotWriter(disk, DIRECTORY, snapshot, last_contained_timestamp_ms=99, voters=VOTERS)


def written(disk: CrashDisk, rows: list[Proposal]) -> Path:
    writer = begin(disk)
    writer.add(rows)
    return writer.finish()


def test_the_name_is_kafkas_and_is_read_back() -> None:
    name = snapshot_file_name(SNAPSHOT)
    assert name == "00000000000000000042-0000000003.checkpoint"
    assert parse_snapshot_file_name(name) == SNAPSHOT
    for other in (name + ".part", name[:-1], "x" + name, "00000000000000000042.log", ""):
        assert parse_snapshot_file_name(other) is None


def test_rows_come_back_in_order_without_the_frame(disk: CrashDisk) -> None:
    assert list(read_snapshot(disk, written(disk, ROWS))) == ROWS


def test_an_empty_snapshot_is_header_and_footer(disk: CrashDisk) -> None:
    assert list(read_snapshot(disk, written(disk, []))) == []


def test_bytes_do_not_depend_on_how_rows_were_cut_into_calls(disk: CrashDisk) -> None:
    many = [Proposal(1100, bytes([index]) * 5_000) for index in range(40)] + ROWS
    whole = disk.read(written(disk, many))
    writer = begin(disk)
    for row in many:
        writer.add([row])
    assert disk.read(writer.finish()) == whole


def test_every_batch_is_written_as_the_general_way_does(disk: CrashDisk) -> None:
    many = [Proposal(1100, bytes(index % 90)) for index in range(3_000)]
    many += [Proposal(None, bytes(200 + index)) for index in range(700)] + ROWS
    for batch in snapshot_batches(disk, written(disk, many)):
        header = batch.header
        records = list(iter_records(batch.data, source="", position=0))
        assert {record.timestamp_ms for record in records} == {99}
        assert batch.data == encode_batch(
            records,
            base_offset=header.base_offset,
            partition_leader_epoch=SNAPSHOT.epoch,
            control=header.is_control,
        )


def test_batches_stay_small(disk: CrashDisk) -> None:
    path = written(disk, [Proposal(None, bytes(1_000))] * 1_000)
    sizes = [batch.header.size_bytes for batch in snapshot_batches(disk, path)]
    assert max(sizes) < 2 * BATCH_BYTES_TARGET
    assert {batch.header.partition_leader_epoch for batch in snapshot_batches(disk, path)} == {3}


def test_a_large_one_goes_to_the_disk_as_it_is_written(
    disk: CrashDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_files, "SYNC_BYTES", 2 * BATCH_BYTES_TARGET)
    writer = begin(disk)
    with mock.patch.object(type(writer._file), "sync", autospec=True) as sync:
        writer.add([Proposal(None, bytes(1_000))] * 1_000)
    assert 5 <= sync.call_count <= 7  # a megabyte


def test_an_unfinished_one_is_not_listed_and_removed_later(disk: CrashDisk) -> None:
    writer = begin(disk)
    writer.add(ROWS)
    assert list_snapshots(disk, DIRECTORY) == ()
    assert disk.list_names(DIRECTORY) == (snapshot_file_name(SNAPSHOT) + ".part",)
    remove_files(disk, DIRECTORY, suffix=PART_SUFFIX)
    assert disk.list_names(DIRECTORY) == ()


def test_an_abandoned_one_leaves_nothing(disk: CrashDisk) -> None:
    writer = begin(disk)
    writer.add(ROWS)
    writer.abandon()
    assert disk.list_names(DIRECTORY) == ()


def test_snapshots_are_listed_oldest_first(disk: CrashDisk) -> None:
    ids = [SnapshotId(0, 0), SnapshotId(9, 2), SnapshotId(10, 2)]
    for snapshot in reversed(ids):
        begin(disk, snapshot).finish()
    assert list_snapshots(disk, DIRECTORY) == tuple(ids)


def test_every_flipped_bit_is_noticed(disk: CrashDisk) -> None:
    """Those outside the checksums too: who sends a snapshot on sends its bytes."""
    path = written(disk, ROWS)
    for position in range(disk.size(path)):
        disk.damage(path, position)
        with pytest.raises(CorruptData):
            list(read_snapshot(disk, path))
        with pytest.raises(CorruptData):
            check_snapshot(disk, path)
        disk.damage(path, position)
    check_snapshot(disk, path)


def test_a_cut_one_is_corrupt_wherever_it_is_cut(disk: CrashDisk) -> None:
    size = disk.size(written(disk, ROWS))
    for end in range(0, size, 11):
        path = written(disk, ROWS)
        disk.truncate(path, end)
        with pytest.raises(CorruptData):
            list(read_snapshot(disk, path))
        with pytest.raises(CorruptData):
            check_snapshot(disk, path)


def test_an_empty_file_is_corrupt_from_its_first_byte_on(disk: CrashDisk) -> None:
    path = written(disk, ROWS)
    disk.truncate(path, 0)
    with pytest.raises(CorruptData) as caught:
        list(read_snapshot(disk, path))
    assert caught.value.position == 0


def test_records_after_the_footer_are_corrupt(disk: CrashDisk) -> None:
    path = written(disk, ROWS)
    handle = disk.open_append(path)
    end = [batch.header.last_offset for batch in snapshot_batches(disk, path)][-1] + 1
    record = Record(offset=end, timestamp_ms=99, key=None, value=b"d")
    handle.append(encode_batch([record], base_offset=end, partition_leader_epoch=SNAPSHOT.epoch))
    with pytest.raises(CorruptData, match="after the footer"):
        list(read_snapshot(disk, path))
    with pytest.raises(CorruptData, match="no footer"):
        check_snapshot(disk, path)


def test_a_snapshot_without_a_header_is_corrupt(disk: CrashDisk) -> None:
    source = written(disk, ROWS)
    first, *later = snapshot_batches(disk, source)
    assert first.header.last_offset == 0  # the header alone
    path = DIRECTORY / "without-header"
    handle = disk.open_append(path)
    for batch in later:
        handle.append(
            encode_batch(
                [
                    replace(each, offset=each.offset - 1)
                    for each in iter_records(batch.data, source="", position=0)
                ],
                base_offset=batch.header.base_offset - 1,
                partition_leader_epoch=SNAPSHOT.epoch,
                control=batch.header.is_control,
            )
        )
    for read in (check_snapshot, lambda *given: list(read_snapshot(*given))):
        with pytest.raises(CorruptData, match="no snapshot header"):
            read(disk, path)


def test_compressed_rows_with_keys_and_headers_are_read_too(disk: CrashDisk) -> None:
    """Nobody writes them here; the general way takes them."""
    path = written(disk, [])
    header, *_, footer = snapshot_batches(disk, path)
    last = next(iter(iter_records(footer.data, source="", position=0)))
    odd = Record(1, 7, b"a key", b"v", (("h", b""),))
    other = DIRECTORY / "odd"
    handle = disk.open_append(other)
    handle.append(bytes(header.data))
    epoch = SNAPSHOT.epoch
    gzip = Codec.GZIP
    handle.append(encode_batch([odd], base_offset=1, partition_leader_epoch=epoch, codec=gzip))
    last = replace(last, offset=2)
    handle.append(encode_batch([last], base_offset=2, partition_leader_epoch=epoch, control=True))
    assert list(read_snapshot(disk, other)) == [Proposal(None, b"v")]
    check_snapshot(disk, other)


def test_the_bootstrap_snapshot_names_the_voters(disk: CrashDisk) -> None:
    path = write_bootstrap_snapshot(disk, DIRECTORY, VOTERS)
    assert path.name == snapshot_file_name(SnapshotId(0, 0))
    assert snapshot_voters(disk, path) == VOTERS
    header = next(
        iter(iter_records(next(iter(snapshot_batches(disk, path))).data, source="", position=0))
    )
    assert header.value == encode_snapshot_header(0), "it has no record, so no time of one"


def test_a_missing_bootstrap_snapshot_is_corrupt_data(disk: CrashDisk) -> None:
    with pytest.raises(CorruptData, match="gone"):
        snapshot_voters(disk, DIRECTORY / "missing")
