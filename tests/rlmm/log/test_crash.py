"""Every crash point of a log's life, with a disk that loses what was not synced.

Checked after each crash: nothing acknowledged is lost or changed, what is there was written by
somebody, no epoch is led twice, and the log can be opened. The planted bugs at the end each remove
one sync, and each must be caught: that shows that the check bites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.log import disk as disk_module
from rlmm.log import log_directory, quorum_state, recovery
from rlmm.log.committed import committed_group, encode_proposals
from rlmm.log.disk import AppendFile
from rlmm.log.log_directory import LogDirectory
from rlmm.log.new_epoch import open_as_leader
from rlmm.log.snapshot_files import SnapshotWriter, read_snapshot
from rlmm.metadata_log import CommittedRecord, Proposal, SnapshotId
from tests.rlmm.log.crash_disk import CrashDisk, PowerCut, Survivors

METADATA = Path("/data/metadata")
SEGMENT_BYTES_MAX = 400
LOSSES = [
    (Survivors.NONE, Survivors.NONE),
    (Survivors.NONE, Survivors.ALL),
    (Survivors.ALL, Survivors.NONE),
    (Survivors.FIRST_HALF, Survivors.ALL),
    (Survivors.LAST_ONLY, Survivors.ALL),
    (Survivors.FIRST_HALF, Survivors.LAST_ONLY),
    (Survivors.ALL, Survivors.FIRST_HALF),
]


class BrokenPromiseError(AssertionError):
    """The log broke a promise."""


@dataclass
class Witness:
    """What was promised and what was tried, outside the machine that dies."""

    acknowledged: dict[int, CommittedRecord] = field(default_factory=dict)
    tried: set[CommittedRecord] = field(default_factory=set)
    epoch: int = 0
    snapshot: SnapshotId | None = None
    recovery_point: int = 0


def open_log(disk: CrashDisk, witness: Witness) -> tuple[LogDirectory, int]:
    """Open and check; everything that is there counts as acknowledged from then on."""
    try:
        log, epoch = open_as_leader(
            disk, METADATA, node_id=1, view_flushed_end=0, segment_bytes_max=SEGMENT_BYTES_MAX
        )
    except Exception as error:
        raise BrokenPromiseError(f"the log does not open: {error!r}") from error
    found = {record.offset: record for record in records_of(log)}
    for offset, record in witness.acknowledged.items():
        if offset >= log.log_start_offset and found.get(offset) != record:
            raise BrokenPromiseError(f"offset {offset} was acknowledged and is {found.get(offset)}")
    if not witness.tried >= set(found.values()):
        raise BrokenPromiseError("there is a record that nobody wrote")
    if epoch <= witness.epoch:
        raise BrokenPromiseError(f"epoch {epoch} is led again, after {witness.epoch}")
    if log.log_start_offset > 0 and witness.snapshot not in log.snapshots():
        raise BrokenPromiseError("the log is cut and its snapshot is gone")
    if witness.snapshot is not None:
        try:
            rows = list(read_snapshot(disk, log.snapshot_path(witness.snapshot)))
        except CorruptData as error:
            raise BrokenPromiseError("the snapshot is damaged") from error
        if rows != [Proposal(None, b"row")]:
            raise BrokenPromiseError("the snapshot is not what was written")
    witness.epoch = epoch
    witness.acknowledged.update(found)
    return log, epoch


def records_of(log: LogDirectory) -> Iterator[CommittedRecord]:
    position, end = log.log_start_offset, log.log_end_offset
    while position < end:
        batches = log.read(position, end, bytes_max=1)
        group = committed_group(batches, position)
        yield from group.records
        position = group.end_offset


def one_life(disk: CrashDisk, witness: Witness) -> None:
    """Everything a node does to its log, in a few steps; a `PowerCut` may end it anywhere."""
    log, epoch = open_log(disk, witness)
    for step in range(5):
        proposals = [
            Proposal(1000 if (step + index) % 3 == 0 else None, b"%d-%d" % (step, index) * 15)
            for index in range(2)
        ]
        start = log.log_end_offset
        batches = encode_proposals(proposals, base_offset=start, epoch=epoch, timestamp_ms=step)
        records = [
            CommittedRecord(start + index, epoch, step, proposal.control_type, proposal.value)
            for index, proposal in enumerate(proposals)
        ]
        witness.tried.update(records)
        log.append_and_sync(batches)
        witness.acknowledged.update({record.offset: record for record in records})
        if step == 1:
            witness.recovery_point = log.store_recovery_point()
        if step == 3:
            snapshot = SnapshotId(log.log_end_offset, epoch)
            writer = SnapshotWriter(
                disk, log.directory, snapshot, last_contained_timestamp_ms=step, voters=()
            )
            writer.add([Proposal(None, b"row")])
            writer.finish()
            witness.snapshot = snapshot
            log.cut_start(snapshot.end_offset, keep_bytes=0)
            log.remove_old_snapshots(keep=1)
    log.close()


def survive_every_crash(disk_class: type[CrashDisk] = CrashDisk) -> int:
    """Crash a life at each of its operations, lose each kind of thing; returns how many cases."""
    cases = 0
    for lives_before in (0, 1):
        for content, names in LOSSES:
            crash_at = 0
            while True:
                disk, witness = disk_class(), Witness()
                for _ in range(lives_before):
                    one_life(disk, witness)
                    disk.process_death()
                disk.crash_at = crash_at
                try:
                    one_life(disk, witness)
                except PowerCut:
                    disk.power_cut(content, names)
                else:
                    break
                log, _ = open_log(disk, witness)
                log.close()
                cases += 1
                crash_at += 1
    return cases


def test_nothing_acknowledged_is_lost_whenever_the_power_goes() -> None:
    assert survive_every_crash() > 700


def process_death_then_power_cut(disk_class: type[CrashDisk] = CrashDisk) -> None:
    """What a restart finds in the page cache becomes acknowledged: the power may go right after."""
    for loss in LOSSES:
        crash_at = 0
        while True:
            disk, witness = disk_class(), Witness()
            disk.crash_at = crash_at
            try:
                one_life(disk, witness)
            except PowerCut:
                disk.process_death()
            else:
                break
            open_log(disk, witness)
            disk.power_cut(*loss)
            open_log(disk, witness)
            crash_at += 1


def test_what_a_restart_counts_survives_a_power_cut_right_after_it() -> None:
    process_death_then_power_cut()


def test_a_crash_during_recovery_is_recovered_from() -> None:
    for first_crash in range(0, 60, 4):
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
        survive_every_crash()
        process_death_then_power_cut()
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


def test_recovery_that_does_not_sync_what_it_keeps_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "_sync", lambda disk, path: None)
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
