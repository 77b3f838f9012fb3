"""A sole voter has its whole log, from offset 0 on, and its view: its newest snapshot is damaged in
its first sector, which nothing that it needs is read from.

The same damage behind the voters' record is passed over (`test_snapshots.py`).
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.log.disk import OsDisk
from rlmm.log.log_limits import LogLimits
from rlmm.log.snapshot_files import DAMAGED_SUFFIX
from tests.rlmm.metadata_node import copied, open_node, running_node
from tests.rlmm.view.test_snapshots import lose_view, newest_snapshot

SECTOR_BYTES = 512
CUT = LogLimits(segment_bytes_max=1_000, retain_bytes_max=4_000)


class BadSector(OsDisk):
    """One file's beginning can't be read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        if path == self._path and position < SECTOR_BYTES:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path, position, length)


@pytest.mark.parametrize("view", ["whole", "lost"])
@pytest.mark.parametrize("damage", ["behind the voters", "in the first batch", "bad sector"])
async def test_a_sole_voter_that_has_its_whole_log_starts(
    tmp_path: Path, damage: str, view: str
) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 3)
        await node.manager.take_snapshot()
        await copied(node.manager, 2, first=3)  # known to no snapshot
        digest = node.manager.digest()
        assert node.log.describe().log_start_offset == 0
    if view == "lost":
        lose_view(tmp_path)
    path = newest_snapshot(tmp_path)
    content = bytearray(path.read_bytes())
    if damage != "bad sector":
        content[-5 if damage == "behind the voters" else 70] ^= 1
    path.write_bytes(content)
    disk = BadSector(path) if damage == "bad sector" else OsDisk()
    again = await open_node(tmp_path, boot=2, disk=disk)
    assert again.manager.digest() == digest
    await again.close()


async def _with_two_snapshots(home: Path) -> tuple[bytes, tuple[Path, Path]]:
    """Digest and snapshots of a log that starts above 0, at or below the older one's end."""
    async with running_node(home, log_limits=CUT) as node:
        await copied(node.manager, 10)
        older = await node.manager.take_snapshot()
        await copied(node.manager, 2, first=10)
        newer = await node.manager.take_snapshot()
        await copied(node.manager, 2, first=12)
        assert 0 < node.log.describe().log_start_offset <= older.end_offset
        paths = tuple(node.log._directory.snapshot_path(each) for each in (older, newer))
        return node.manager.digest(), (paths[0], paths[1])


def _damage(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def _set_aside(path: Path) -> Path:
    return path.with_name(path.name + DAMAGED_SUFFIX)


@pytest.mark.parametrize(("position", "view"), [(70, "whole"), (70, "lost"), (-5, "lost")])
async def test_an_older_snapshot_and_the_log_behind_it_do(
    tmp_path: Path, position: int, view: str
) -> None:
    digest, (_, newer) = await _with_two_snapshots(tmp_path)
    if view == "lost":
        lose_view(tmp_path)
    _damage(newer, position)
    for boot in (2, 3):
        async with running_node(tmp_path, boot=boot, log_limits=CUT) as node:
            assert node.manager.digest() == digest
            assert _set_aside(newer).exists()
            (trouble,) = node.log.describe().troubles
            assert newer.name in trouble[1]
    _set_aside(newer).unlink()
    async with running_node(tmp_path, boot=4, log_limits=CUT) as node:
        assert node.log.describe().troubles == ()


@pytest.mark.parametrize("view", ["whole", "lost"])
async def test_no_snapshot_is_set_aside_if_none_else_reaches_the_log(
    tmp_path: Path, view: str
) -> None:
    _, paths = await _with_two_snapshots(tmp_path)
    if view == "lost":
        lose_view(tmp_path)
    for path in paths:
        _damage(path, 70)
    with pytest.raises(CorruptData, match="no other is whole"):
        await open_node(tmp_path, boot=2, log_limits=CUT)
    assert all(path.exists() for path in paths)
