"""A snapshot put in the place of a log, and the power going at any moment of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.log import recovery
from rlmm.log.log_directory import LogDirectory
from rlmm.log.snapshot_files import download_name, snapshot_file_name
from rlmm.metadata_log import SnapshotId
from tests.durability.log_life import LOSSES
from tests.rlmm.log.crash_disk import CrashDisk, PowerCut
from tests.rlmm.log.test_recovery import METADATA, PARTITION, append, open_log, write_snapshot

COMMITTED = 2
OF_THE_OTHERS = SnapshotId(14, 6)


def deposed() -> tuple[CrashDisk, LogDirectory, Path]:
    """The log of a leader of epoch 5 that wrote what nobody else has, longer than what the others
    have committed since, and their snapshot, downloaded.
    """
    disk = CrashDisk()
    log = open_log(disk)
    append(log, COMMITTED, epoch=4)
    append(log, 18, epoch=5)
    log.store_recovery_point()
    write_snapshot(disk, OF_THE_OTHERS)
    part = PARTITION / download_name(OF_THE_OTHERS)
    disk.rename(PARTITION / snapshot_file_name(OF_THE_OTHERS), part)
    disk.sync_directory(PARTITION)
    return disk, log, part


def crashes() -> Iterator[tuple[CrashDisk, bool]]:
    """The disk after a power cut at each operation of the installation, and after it; whether that
    was behind its end.
    """
    for content, names in LOSSES:
        ended, crash_at = False, 0
        while not ended:
            disk, log, part = deposed()
            disk.operations, disk.crash_at = 0, crash_at
            try:
                log.install_snapshot(OF_THE_OTHERS, part)
                ended = True
            except PowerCut:
                pass
            disk.power_cut(content, names)
            yield disk, ended
            crash_at += 1


def test_what_nobody_committed_is_never_below_an_installed_snapshot() -> None:
    found = set()
    for disk, ended in crashes():
        log = open_log(disk, view_flushed_end=COMMITTED)
        is_there = OF_THE_OTHERS in log.snapshots()
        begins, ends = log.log_start_offset, log.log_end_offset
        assert is_there or not ended
        assert (begins, ends) == ((14, 14) if is_there else (0, 20))
        found.add((is_there, ended))
        log.close()
    assert found == {(False, False), (True, False), (True, True)}


def test_a_crash_while_the_old_log_is_removed_at_a_start_is_recovered_from() -> None:
    for first, _ in crashes():
        for crash_at in range(40):
            disk = first.copy()
            disk.operations, disk.crash_at = 0, crash_at
            try:
                open_log(disk, view_flushed_end=COMMITTED).close()
                break
            except PowerCut:
                disk.power_cut(*LOSSES[crash_at % len(LOSSES)])
            log = open_log(disk, view_flushed_end=COMMITTED)
            assert log.log_start_offset in (0, 14)
            assert (log.log_start_offset == 14) == (OF_THE_OTHERS in log.snapshots())


def test_a_longer_log_that_holds_the_snapshots_records_stays() -> None:
    disk = CrashDisk()
    log = open_log(disk)
    append(log, 20, epoch=6)
    write_snapshot(disk, OF_THE_OTHERS)
    log.close()
    log = open_log(disk, view_flushed_end=COMMITTED)
    assert (log.log_start_offset, log.log_end_offset) == (0, 20)


def test_a_log_that_was_durable_and_contradicts_its_snapshot_is_an_error() -> None:
    disk, log, part = deposed()
    disk.rename(part, PARTITION / snapshot_file_name(OF_THE_OTHERS))
    log.close()
    before = disk.copy()
    with pytest.raises(CorruptData, match="in epoch 5, its newest snapshot in epoch 6"):
        open_log(disk, view_flushed_end=COMMITTED)
    assert recovery.load_recovery_point(disk, METADATA) == 20
    assert disk.list_names(PARTITION) == before.list_names(PARTITION)


@pytest.mark.parametrize("content", [b"", b"no snapshot", bytes(200)])
def test_no_log_is_removed_for_a_snapshot_that_cannot_be_read(content: bytes) -> None:
    disk, _, part = deposed()
    disk.remove(part)
    recovery.store_recovery_point(disk, METADATA, COMMITTED)
    path = PARTITION / snapshot_file_name(OF_THE_OTHERS)
    disk.open_append(path).append(content)
    before = disk.copy()
    with pytest.raises(CorruptData, match="nothing was changed") as caught:
        open_log(disk, view_flushed_end=COMMITTED)
    assert caught.value.source == str(path)
    names = disk.list_names(PARTITION)
    assert names == before.list_names(PARTITION)
    assert all(disk.read(PARTITION / name) == before.read(PARTITION / name) for name in names)
