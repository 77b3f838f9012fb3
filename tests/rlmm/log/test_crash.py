"""Every crash point of a log's life, with a disk that loses what was not synced.

Checked after each crash: nothing acknowledged is lost or changed, what is there was written by
somebody, no epoch is led twice, and the log can be opened. The planted bugs at the end each remove
one sync, and each must be caught: that shows that the check bites.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlmm.log import disk as disk_module
from rlmm.log import log_directory, recovery
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import AppendFile
from rlmm.log.log_directory import LogDirectory
from rlmm.log.snapshot_files import SnapshotWriter
from tests.durability.log_life import (
    LOSSES,
    METADATA,
    BrokenPromiseError,
    Witness,
    keep_every_promise,
    one_life,
    open_log,
    process_death_then_power_cut,
    survive_every_crash,
)
from tests.rlmm.log.crash_disk import CrashDisk, PowerCut, Survivors


def test_nothing_acknowledged_is_lost_whenever_the_power_goes() -> None:
    assert survive_every_crash() > 700


def test_what_a_restart_counts_survives_a_power_cut_right_after_it() -> None:
    process_death_then_power_cut()


def test_a_crash_during_recovery_is_recovered_from() -> None:
    for first_crash in range(0, 48, 4):
        second_crash = 0
        while True:
            disk, witness = CrashDisk(), Witness()
            disk.crash_at = first_crash
            with pytest.raises(PowerCut):
                one_life(disk, witness)
            disk.power_cut(Survivors.FIRST_HALF, Survivors.ALL)
            disk.crash_at = second_crash
            try:
                open_log(disk, witness)
                break
            except PowerCut:
                disk.power_cut(Survivors.NONE, Survivors.FIRST_HALF)
                open_log(disk, witness)
            second_crash += 1


def _nothing() -> None:
    pass


class NoFileSync(CrashDisk):
    """Bug: appended bytes are never synced."""

    def open_append(self, path: Path) -> AppendFile:
        handle = super().open_append(path)
        handle.sync = _nothing  # type: ignore[method-assign]  # a planted bug
        return handle


class NoDirectorySync(CrashDisk):
    """Bug: names are never synced."""

    def sync_directory(self, path: Path) -> None:
        pass


class NoSyncBetweenRemovals(CrashDisk):
    """Bug: several segments are removed and their names synced once, so that a hole may survive."""

    last_removed = False

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.last_removed = path.suffix == ".log"

    def sync_directory(self, path: Path) -> None:
        if not self.last_removed:
            super().sync_directory(path)
        self.last_removed = False


def caught() -> bool:
    try:
        keep_every_promise()
    except BrokenPromiseError:
        return True
    return False


@pytest.mark.parametrize("broken", [NoFileSync, NoDirectorySync, NoSyncBetweenRemovals])
def test_a_disk_without_a_sync_is_caught(broken: type[CrashDisk]) -> None:
    with pytest.raises(BrokenPromiseError):
        survive_every_crash(broken)


def replace_without_sync(disk: CrashDisk, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    disk.remove(temporary)
    disk.open_append(temporary).append(data)
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def replace_without_directory_sync(disk: CrashDisk, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    disk.remove(temporary)
    handle = disk.open_append(temporary)
    handle.append(data)
    handle.sync()
    disk.rename(temporary, path)


@pytest.mark.parametrize("bug", [replace_without_sync, replace_without_directory_sync])
@pytest.mark.parametrize("victim", [quorum_state, log_directory])
def test_a_small_file_replaced_without_a_sync_is_caught(
    monkeypatch: pytest.MonkeyPatch, bug: object, victim: object
) -> None:
    monkeypatch.setattr(victim, "replace_file", bug)
    assert caught()


def test_recovery_that_does_not_write_anew_what_it_keeps_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "_write_anew", lambda disk, segment: None)
    assert caught()


def test_a_roll_without_a_sync_of_the_old_segment_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = LogDirectory._roll

    def roll(self: LogDirectory) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(self, "_sync_active", _nothing)
            return original(self)

    monkeypatch.setattr(LogDirectory, "_roll", roll)
    assert caught()


def test_an_acknowledgement_before_the_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "_sync_active", lambda self: None)
    assert caught()


def test_an_epoch_that_is_not_persisted_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_state, "store", lambda disk, directory, state: None)
    assert caught()


def test_a_snapshot_without_a_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: SnapshotWriter) -> Path:
        self._file.sync = _nothing  # type: ignore[method-assign]  # a planted bug
        return original(self)

    original = SnapshotWriter.finish
    monkeypatch.setattr(SnapshotWriter, "finish", finish)
    assert caught()


def test_the_real_replacement_of_a_file_leaves_old_or_new_content() -> None:
    path = METADATA / "state"
    for loss in LOSSES:
        for crash_at in range(20):
            disk = CrashDisk()
            disk.make_directory(METADATA)
            disk_module.replace_file(disk, path, b"old")
            disk.operations, disk.crash_at = 0, crash_at
            try:
                disk_module.replace_file(disk, path, b"new")
            except PowerCut:
                disk.power_cut(*loss)
                assert disk.read(path) in (b"old", b"new")
            else:
                disk.power_cut(*loss)
                assert disk.read(path) == b"new"
