"""Links to active segments after crashes, power cuts and on a failing disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka_formats.log_names import LEADER_EPOCH_CHECKPOINT_FILE, segment_file_name
from rlm.local_log.active_links import (
    ActiveLink,
    Kept,
    active_root,
    find_links,
    keep_committed,
    kept_committed,
    link_active,
    link_beside,
)
from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.log_dir import LocalPartition, find_partitions
from rlm.local_log.replica_directory import SMALL_FILE_BYTES_MAX
from tests.rlm.broker_files import ReplicaWriter, write_checkpoint
from tests.rlm.held_segments import all_of_it
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.planner_facts import epochs

CHECKPOINT = LEADER_EPOCH_CHECKPOINT_FILE


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, end=35)
    return log


@pytest.fixture
def root(directory: HoldDirectory) -> Path:
    return active_root(directory.path)


@pytest.fixture
def directory(tmp_path: Path) -> HoldDirectory:
    return HoldDirectory(tmp_path / "hold" / "cluster-1", ())


def local(log_dir: Path) -> LocalPartition:
    (found,) = find_partitions([log_dir], kafka_cluster_id=None).partitions
    return found


def linked(root: Path, log_dir: Path) -> ActiveLink:
    link = link_active(root, local(log_dir))
    assert link is not None
    return link


@pytest.mark.parametrize("damage", [None, bytes(SMALL_FILE_BYTES_MAX + 1)])
def test_records_stay_when_the_checkpoint_beside_their_link_is_lost(
    root: Path, directory: HoldDirectory, log: KafkaLog, damage: bytes | None
) -> None:
    """It is written anew while the file is in the log; then the batches tell the epochs."""
    before = linked(root, log.log_dir)
    for is_in_log in (True, False):
        (before.path / CHECKPOINT).unlink()
        if damage is not None:
            (before.path / CHECKPOINT).write_bytes(damage)
        (found,) = find_links(root)
        assert found.log_path.exists()
        if is_in_log:
            link_beside(found, local(log.log_dir))
            assert find_links(root) == (before,)
    unit = directory.hold_left(found, None, all_of_it, may_cut=False).unit
    assert unit is not None
    assert (unit.next_base_offset, unit.leader_epochs) == (35, epochs((0, 0)))


def test_a_unit_is_made_beside_a_replica_that_moved_to_another_mount(
    root: Path, directory: HoldDirectory, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot at its end is there, and no link to it can be made."""
    link, real = linked(root, log.log_dir), os.link

    def crossing(source: Path, target: Path) -> None:
        if source.parent == log.directory:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
        real(source, target)

    monkeypatch.setattr(os, "link", crossing)
    unit = directory.hold_left(link, local(log.log_dir), all_of_it, may_cut=False).unit
    assert unit is not None
    assert unit.segment.log_path.exists()


def test_a_directory_without_its_log_is_removed(root: Path, log: KafkaLog) -> None:
    link = linked(root, log.log_dir)
    link.log_path.unlink()
    assert find_links(root) == ()
    assert not link.path.exists()


def test_a_link_has_no_file_of_one_that_was_half_removed(root: Path, log: KafkaLog) -> None:
    """Its directory has the same name: the inode is used again."""
    link = linked(root, log.log_dir)
    link.log_path.unlink()
    for suffix in (".index", ".snapshot"):
        path = link.path / segment_file_name(0, suffix)
        path.unlink()
        path.write_bytes(b"of another file")
    assert linked(root, log.log_dir) == link
    for suffix in (".log", ".index", ".snapshot"):
        name = segment_file_name(0, suffix)
        assert os.path.samefile(link.path / name, log.directory / name)


def test_what_a_unit_of_an_active_segment_has_of_its_own_outlives_a_power_cut(
    tmp_path: Path, root: Path, directory: HoldDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index for aborted transactions that is empty would say that there are none."""
    log_dir = new_log_dir(tmp_path / "kafka")
    writer = ReplicaWriter(log_dir)
    writer.append(5)
    writer.flush()
    write_checkpoint(log_dir, "replication-offset-checkpoint", {("orders", 0): 5})
    link = linked(root, log_dir)
    writer.append(5, producer_id=7, transactional=True)
    writer.end_transaction(7, commit=False)
    writer.flush()
    synced = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "fdatasync", fsync)
    unit = directory.hold_left(link, None, all_of_it, may_cut=False).unit
    assert unit is not None
    made = [path for path in unit.segment.log_path.parent.iterdir() if path.stat().st_nlink == 1]
    written = [path for path in made if path.stat().st_size > 0]
    assert ".txnindex" in {path.suffix for path in written}
    assert [path.name for path in written if path.stat().st_ino not in synced] == []


def test_a_kept_high_watermark_outlives_a_power_cut(
    root: Path, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = linked(root, log.log_dir)
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino))
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.add(os.fstat(fd).st_ino))
    keep_committed(link, Kept(30))
    (kept,) = link.path.glob("high-watermark")
    assert {kept.stat().st_ino, link.path.stat().st_ino} <= synced
    assert kept_committed(link) == Kept(30)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"30\n", Kept(30)),
        (b"3", Kept(3)),
        (b"cut 30\n", Kept(30, is_cut=True)),
        (b"cut 3", Kept(3, is_cut=True)),
        (b"cut ", Kept(0, is_cut=True)),
        (b"cut -1\n", Kept(0, is_cut=True)),
        (b"\0" * 8, Kept(0, is_cut=True)),
        (b"", Kept(0, is_cut=True)),
    ],
)
def test_a_kept_high_watermark_is_read_as_far_as_it_is_whole(
    root: Path, log: KafkaLog, text: bytes, kept: Kept
) -> None:
    link = linked(root, log.log_dir)
    (link.path / "high-watermark").write_bytes(text)
    assert kept_committed(link) == kept


def test_a_kept_high_watermark_that_cannot_be_opened_may_have_told_of_a_cut(
    root: Path, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = linked(root, log.log_dir)
    assert kept_committed(link) == Kept(-1)
    keep_committed(link, Kept(7, is_cut=True))

    def full(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "too many open files", str(path))

    monkeypatch.setattr(Path, "read_bytes", full)
    assert kept_committed(link) == Kept(0, is_cut=True)


@pytest.mark.parametrize("kept", [Kept(0), Kept(7), Kept(7, is_cut=True)])
def test_a_kept_high_watermark_is_read_as_it_was_written(
    root: Path, log: KafkaLog, kept: Kept
) -> None:
    link = linked(root, log.log_dir)
    keep_committed(link, kept)
    assert kept_committed(link) == kept


def test_of_a_file_of_which_all_was_cut_nothing_is_kept_but_the_cut(
    root: Path, log: KafkaLog
) -> None:
    link = linked(root, log.log_dir)
    keep_committed(link, Kept(-1, is_cut=True))
    assert kept_committed(link) == Kept(0, is_cut=True)
