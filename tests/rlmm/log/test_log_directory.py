"""Appending, rolling, reading and cutting the log; a failing disk ends it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, InternalError, NotFound, RetryLater
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlmm.log.committed import committed_group, encode_proposals
from rlmm.log.disk import AppendFile
from rlmm.log.log_directory import DAMAGED_MAX, LogDirectory
from rlmm.log.log_limits import LogLimits
from rlmm.log.recovery import PARTITION_DIRECTORY, load_committed_end, load_recovery_point
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import Proposal, SnapshotId
from rlmm.quorum.log_cut import cut_log
from tests.rlmm.log.appending import append_and_sync
from tests.rlmm.log.crash_disk import CrashDisk

METADATA = Path("/data/metadata")
PARTITION = METADATA / PARTITION_DIRECTORY


def open_log(disk: CrashDisk, *, segment_bytes_max: int = 600) -> LogDirectory:
    return LogDirectory.open(
        disk, METADATA, view_flushed_end=0, segment_bytes_max=segment_bytes_max
    )


def append(log: LogDirectory, *values: bytes, epoch: int = 1) -> None:
    proposals = [Proposal(None, value) for value in values]
    append_and_sync(
        log,
        encode_proposals(proposals, base_offset=log.log_end_offset, epoch=epoch, timestamp_ms=5),
    )


def segments(disk: CrashDisk) -> list[str]:
    return [name for name in disk.list_names(PARTITION) if name.endswith(".log")]


def read_all(log: LogDirectory, start: int, *, bytes_max: int) -> list[bytes]:
    found = []
    while start < log.log_end_offset:
        group = committed_group(log.read(start, log.log_end_offset, bytes_max=bytes_max), start)
        found += [record.value for record in group.records]
        start = group.end_offset
    return found


def test_segments_roll_before_they_grow_too_large() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    for _ in range(10):
        append(log, bytes(100))
    assert len(segments(disk)) == 4
    assert all(disk.size(PARTITION / name) <= 600 for name in segments(disk))
    assert segments(disk)[:2] == [f"{0:020d}.log", f"{3:020d}.log"]


def test_a_batch_larger_than_a_segment_has_one_of_its_own() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    append(log, b"small")
    append(log, bytes(2_000))
    append(log, b"small")
    assert len(segments(disk)) == 3


@pytest.mark.parametrize("bytes_max", [1, 3_000, 1 << 20])
def test_every_offset_can_be_read_from(bytes_max: int) -> None:
    disk = CrashDisk()
    log = open_log(disk, segment_bytes_max=40_000)
    values = [bytes([index]) * size for index, size in enumerate([10, 5_000, 30, 9_000, 70] * 9)]
    for value in values:
        append(log, value)
    for start in range(len(values)):
        assert read_all(log, start, bytes_max=bytes_max) == values[start:]
    reopened = open_log(disk, segment_bytes_max=40_000)
    assert read_all(reopened, 0, bytes_max=bytes_max) == values


def test_reading_stops_below_the_given_end() -> None:
    log = open_log(CrashDisk())
    append(log, b"a")
    append(log, b"b")
    assert [batch.header.base_offset for batch in log.read(0, 1, bytes_max=1_000)] == [0]


def test_what_the_writer_may_be_changing_is_not_looked_at() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    append(log, b"a", b"b")
    first = disk.size(PARTITION / segments(disk)[0])
    append(log, b"c")
    file = disk.medium.file(PARTITION / segments(disk)[0])
    file.live[first:] = bytes(len(file.live) - first)
    (batch,) = log.read(0, 2, bytes_max=1 << 20)
    assert batch.header.last_offset == 1
    assert log.border_from(1) == log.border_from(2) == 2
    with pytest.raises(CorruptData):
        log.read(0, 3, bytes_max=1 << 20)


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    log = open_log(CrashDisk())
    append(log, b"a", b"b", b"c")
    batches = log.read(1, 3, bytes_max=1_000)
    assert [record.value for record in committed_group(batches, 1).records] == [b"b", b"c"]


def test_reading_below_the_log_start_is_not_found() -> None:
    log = open_log(CrashDisk())
    for _ in range(10):
        append(log, bytes(100))
    log.cut_start(6, keep_bytes=0)
    assert log.log_start_offset == 6
    with pytest.raises(NotFound, match="install a snapshot first"):
        log.read(5, 10, bytes_max=1_000)


def test_stored_bytes_that_rot_are_not_served() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    append(log, bytes(100))
    disk.damage(PARTITION / segments(disk)[0], 90)
    with pytest.raises(CorruptData, match="CRC"):
        log.read(0, 1, bytes_max=1_000)


@pytest.mark.parametrize(("up_to", "keep_bytes", "start"), [
    (0, 0, 0), (2, 0, 0), (3, 0, 3), (8, 0, 6), (99, 0, 9), (99, 10**6, 0), (99, 700, 3),
])  # fmt: skip
def test_the_start_is_cut_by_whole_segments_and_keeps_what_it_must(
    up_to: int, keep_bytes: int, start: int
) -> None:
    disk = CrashDisk()
    log = open_log(disk)
    for _ in range(10):
        append(log, bytes(100))
    log.cut_start(up_to, keep_bytes=keep_bytes)
    assert log.log_start_offset == start
    assert segments(disk)[0] == f"{start:020d}.log"
    assert log.log_end_offset == 10


def test_epochs_are_checkpointed_before_their_first_batch_and_cut_with_the_start() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    for epoch in (1, 2, 5):
        for _ in range(3):
            append(log, bytes(100), epoch=epoch)
    assert log.epochs == (EpochEntry(1, 0), EpochEntry(2, 3), EpochEntry(5, 6))
    assert disk.read(PARTITION / "leader-epoch-checkpoint") == b"0\n3\n1 0\n2 3\n5 6\n"
    log.cut_start(6, keep_bytes=0)
    assert disk.read(PARTITION / "leader-epoch-checkpoint") == b"0\n1\n5 6\n"


def test_old_snapshots_go_and_the_bootstrap_one_stays() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    ids = [SnapshotId(0, 0), SnapshotId(3, 1), SnapshotId(5, 1), SnapshotId(8, 2)]
    for snapshot in ids:
        SnapshotWriter(disk, PARTITION, snapshot, last_contained_timestamp_ms=5, voters=()).finish()
    log.remove_old_snapshots(keep=2, held=(ids[1],))
    assert log.snapshots() == tuple(ids)
    log.remove_old_snapshots(keep=2)
    assert log.snapshots() == (ids[0], *ids[2:])
    log.remove_old_snapshots(keep=0)
    assert log.snapshots() == (ids[0], ids[3])


def _with_snapshots(disk: CrashDisk, *ends: int) -> tuple[LogDirectory, list[SnapshotId]]:
    log = open_log(disk)
    for _ in range(10):
        append(log, bytes(100))
    ids = [SnapshotId(end, 1) for end in (0, *ends)]
    for snapshot in ids:
        SnapshotWriter(disk, PARTITION, snapshot, last_contained_timestamp_ms=5, voters=()).finish()
    return log, ids


def test_a_snapshot_is_set_aside_only_if_another_whole_one_reaches_the_log() -> None:
    disk = CrashDisk()
    log, (bootstrap, *ids) = _with_snapshots(disk, 4, 7)
    log.cut_start(4, keep_bytes=0)
    assert log.log_start_offset == 3
    assert not log.set_aside(bootstrap)
    disk.damage(log.snapshot_path(ids[0]), 70, bit=1)
    assert not log.set_aside(ids[1])
    assert log.set_aside(ids[0])
    assert log.snapshots() == (bootstrap, ids[1])
    assert log.damaged_snapshots() == (f"{log.snapshot_path(ids[0]).name}.damaged",)
    assert log.set_aside(ids[0])  # somebody else's question came to the same


def test_of_snapshots_that_were_set_aside_the_newest_few_are_kept() -> None:
    log, (_, *ids) = _with_snapshots(CrashDisk(), *range(4, 6 + DAMAGED_MAX))
    assert all(map(log.set_aside, ids))
    kept = ids[-DAMAGED_MAX:]
    assert log.damaged_snapshots() == tuple(
        f"{log.snapshot_path(each).name}.damaged" for each in kept
    )


def test_a_snapshot_that_ends_below_the_log_start_replaces_no_other() -> None:
    log, (*_, below, newest) = _with_snapshots(CrashDisk(), 4, 7)
    log.cut_start(7, keep_bytes=0)
    assert log.log_start_offset == 6
    assert not log.set_aside(newest)
    assert log.set_aside(below)


def test_the_ends_that_a_snapshot_told_are_stored_before_it_is_set_aside() -> None:
    """Below its end the log was durable and committed: a log that lost that is damaged."""
    disk = CrashDisk()
    log, (*_, newest) = _with_snapshots(disk, 4, 7)
    assert load_recovery_point(disk, METADATA) == load_committed_end(disk, METADATA) == 0
    assert log.set_aside(newest)
    assert load_recovery_point(disk, METADATA) == log.log_end_offset
    assert load_committed_end(disk, METADATA) == newest.end_offset


def test_a_cut_that_was_due_to_a_snapshot_ends_with_it() -> None:
    """It was taken up to the newest one's end, which was set aside before the cut's turn."""
    log, (*_, newest) = _with_snapshots(CrashDisk(), 4, 7)
    assert log.set_aside(newest)
    done = cut_log(log, newest.end_offset, (), LogLimits(retain_bytes_max=0))
    assert done.log_start_offset == 3


def test_a_gap_in_what_is_appended_is_our_bug() -> None:
    log = open_log(CrashDisk())
    with pytest.raises(InternalError):
        append_and_sync(
            log, encode_proposals([Proposal(None, b"x")], base_offset=7, epoch=1, timestamp_ms=5)
        )


class FailingDisk(CrashDisk):
    """Fails the next sync of a segment when told to, once: a second try would succeed."""

    fail_next_sync = False
    syncs = 0

    def open_append(self, path: Path) -> AppendFile:
        handle = super().open_append(path)
        sync = handle.sync

        def failing() -> None:
            self.syncs += 1
            if self.fail_next_sync:
                self.fail_next_sync = False
                raise OSError(5, "Input/output error")
            sync()

        handle.sync = failing  # type: ignore[method-assign]  # a fault
        return handle


def test_a_failed_sync_is_final_and_never_repeated() -> None:
    disk = FailingDisk()
    log = open_log(disk)
    append(log, b"before")
    disk.fail_next_sync = True
    with pytest.raises(RetryLater, match="Input/output error"):
        append(log, b"unknown")
    assert log.synced_end == 1
    syncs = disk.syncs
    for attempt in (
        lambda: append(log, b"after"),
        log.store_recovery_point,
        lambda: log.cut_start(1, keep_bytes=0),
    ):
        with pytest.raises(RetryLater, match="restart the node"):
            attempt()
    assert disk.syncs == syncs
    assert log.failure is not None
    assert disk.read(METADATA.parent / "metadata" / PARTITION_DIRECTORY / segments(disk)[0])


class TearingDisk(CrashDisk):
    """Takes half of the next write to a segment when told to, once: then there is room again."""

    tear_next_write = 0

    def open_append(self, path: Path) -> AppendFile:
        handle = super().open_append(path)
        write = handle.append

        def tearing(data: bytes) -> None:
            error, self.tear_next_write = self.tear_next_write, 0
            write(data[: len(data) // 2] if error else data)
            if error:
                raise OSError(error, os.strerror(error))

        handle.append = tearing  # type: ignore[method-assign]  # a fault
        return handle


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_is_final_and_never_repeated_behind_its_torn_half(error: int) -> None:
    disk = TearingDisk()
    log = open_log(disk)
    append(log, b"before")
    disk.tear_next_write = error
    with pytest.raises(RetryLater, match=os.strerror(error)):
        append(log, b"torn")
    size = disk.size(PARTITION / segments(disk)[-1])
    for value in (b"torn", b"after"):
        with pytest.raises(RetryLater, match="restart the node"):
            append(log, value)
    assert disk.size(PARTITION / segments(disk)[-1]) == size
    again = open_log(disk)
    assert again.cut is not None
    append(again, b"after")
    assert read_all(again, 0, bytes_max=1) == [b"before", b"after"]


def test_a_closed_log_takes_nothing() -> None:
    log = open_log(CrashDisk())
    log.close()
    log.close()
    with pytest.raises(RetryLater, match="shutting down"):
        append(log, b"x")


def test_no_turned_bit_hides_what_the_log_has() -> None:
    """Offset, length and epoch of a batch lie outside its CRC."""
    disk = CrashDisk()
    log = open_log(disk, segment_bytes_max=1 << 20)
    values = [bytes([index]) * size for index, size in enumerate([10, 3_000, 30, 3_000, 70])]
    for index, value in enumerate(values):
        append(log, value, epoch=1 + index // 2)
    path = PARTITION / segments(disk)[0]
    found = log.read(0, 5, bytes_max=1 << 20)
    borders = [batch.position for batch in found]
    assert borders == [sum(len(each.data) for each in found[:n]) for n in range(len(found))]
    for position in (border + at for border in borders for at in range(61)):
        for bit in (0, 7):
            disk.damage(path, position, bit=bit)
            for start in range(len(values)):
                for bytes_max in (1, 4_000):
                    try:
                        assert read_all(log, start, bytes_max=bytes_max) == values[start:]
                    except CorruptData:
                        continue
            disk.damage(path, position, bit=bit)
    assert read_all(log, 0, bytes_max=1) == values


def test_no_turned_bit_makes_a_truncation_cut_elsewhere() -> None:
    for position in range(17):
        disk = CrashDisk()
        log = open_log(disk)
        for _ in range(3):
            append(log, bytes(50))
        disk.damage(PARTITION / segments(disk)[0], position)
        before = disk.size(PARTITION / segments(disk)[0])
        try:
            log.truncate_to(2)
        except CorruptData:
            assert disk.size(PARTITION / segments(disk)[0]) == before
        else:
            assert 3 * disk.size(PARTITION / segments(disk)[0]) == 2 * before
