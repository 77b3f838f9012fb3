"""What a leader reads from its disk for others, and when it checks that."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from rlmm.log.disk import Disk, OsDisk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.snapshot_files import snapshot_file_name
from rlmm.metadata_log import SnapshotId
from rlmm.quorum import disk_reads
from rlmm.quorum.disk_reads import DiskReads
from rlmm.raft.messages import SnapshotRead

SNAPSHOT = SnapshotId(10, 1)


class Snapshots:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def snapshot_path(self, snapshot: SnapshotId) -> Path:
        return self._directory / snapshot_file_name(snapshot)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    checked = list[str]()

    def check(_disk: Disk, path: Path) -> None:
        checked.append(path.name)

    monkeypatch.setattr(disk_reads, "check_snapshot", check)
    return checked


@pytest.mark.parametrize("size", [30, 25])
def test_several_downloads_at_once_make_nobody_wait_for_another_check(
    tmp_path: Path, checks: list[str], size: int
) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.snapshot_path(SNAPSHOT).write_bytes(bytes(range(size)))
    reads = DiskReads(cast(LogDirectory, snapshots), OsDisk())

    def piece(position: int) -> bytes:
        return reads.snapshot(SnapshotRead(SNAPSHOT, position, 10))

    # One node is behind its first piece while another one still asks for that.
    assert [piece(at)[:1] for at in (0, 10, 0, 10, 0)] == [b"\0", b"\n", b"\0", b"\n", b"\0"]
    assert len(checks) == 1
    assert piece(20) == bytes(range(20, size))
    piece(0)
    assert len(checks) == 2, "a download that begins later is of bytes that were checked for it"
