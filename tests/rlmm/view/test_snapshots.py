"""A view starts from the log where it can, from a snapshot where it must, and else not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from kafka_formats.errors import CorruptData
from rlmm.log.log_limits import LogLimits
from rlmm.log.snapshot_files import DAMAGED_SUFFIX
from rlmm.manager.manager import MetadataLimits
from rlmm.metadata_log import SnapshotId
from rlmm.view.snapshots import install_if_needed, view_now, write_snapshot
from rlmm.view.view import View
from tests.rlmm.metadata_node import copied, open_log, open_node, running_node, started, until

ROLLING = LogLimits(segment_bytes_max=1_000, retain_bytes_max=0)


async def cut_log(home: Path) -> bytes:
    """A home whose log starts above 0; returns the digest."""
    node = await open_node(home, log_limits=ROLLING)
    await copied(node.manager, 10)
    await node.manager.take_snapshot()
    digest = node.manager.digest()
    await node.close()
    return digest


def lose_view(home: Path) -> None:
    for path in (home / "view").iterdir():
        path.unlink()


def newest_snapshot(home: Path) -> Path:
    return max((home / "metadata").rglob("*.checkpoint"))


async def test_an_empty_view_and_an_empty_log_need_nothing(tmp_path: Path) -> None:
    view = View.open(tmp_path / "view")
    log = await open_log(tmp_path, view)
    await install_if_needed(log, view)
    assert view.applied_offset == -1
    await log.close()
    view.close()


async def test_a_view_that_lacks_nothing_is_left_alone(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 2)
        await node.manager.take_snapshot()
        await copied(node.manager, 1, first=2)
        applied = node.view.applied_offset
        await install_if_needed(node.log, node.view)
        assert node.view.applied_offset == applied


async def test_a_lost_view_is_installed_and_durable(tmp_path: Path) -> None:
    digest = await cut_log(tmp_path)
    lose_view(tmp_path)
    view = View.open(tmp_path / "view")
    log = await open_log(tmp_path, view)
    await install_if_needed(log, view)
    snapshot = log.latest_snapshot()
    assert snapshot is not None
    assert view.flushed_offset == view.applied_offset == snapshot.end_offset - 1
    assert view.applied_epoch == snapshot.epoch
    assert view.digest() == digest
    await log.close()
    view.close()


async def test_a_damaged_snapshot_is_not_installed(tmp_path: Path) -> None:
    await cut_log(tmp_path)
    lose_view(tmp_path)
    path = newest_snapshot(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData, match=path.name):
        await open_node(tmp_path, boot=2)


async def test_a_damaged_snapshot_is_passed_over_where_the_log_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 3)
        await node.manager.take_snapshot()
        digest = node.manager.digest()
    lose_view(tmp_path)
    path = newest_snapshot(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    async with running_node(tmp_path, boot=2) as node:
        assert node.manager.digest() == digest
    assert "damaged and set aside" in caplog.text
    assert not path.exists()
    assert path.with_name(path.name + DAMAGED_SUFFIX).exists()


async def test_a_gap_that_no_snapshot_closes_is_a_hard_error(tmp_path: Path) -> None:
    await cut_log(tmp_path)
    lose_view(tmp_path)
    newest_snapshot(tmp_path).unlink()
    with pytest.raises(CorruptData, match="no snapshot covers"):
        await open_node(tmp_path, boot=2)


async def test_a_snapshot_asked_for_inside_a_batch_ends_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = MetadataLimits(apply_cost_max=1)
    async with running_node(tmp_path, limits=limits) as node:
        token = await copied(node.manager, 1)
        before = node.view.applied_offset
        adding = asyncio.gather(
            *(
                node.manager.add_remote_log_segment_metadata(started(number, token))
                for number in range(1, 9)
            )
        )
        await until(lambda: node.view.applied_offset > before)
        assert node.view.applied_offset < before + 8  # a step applies one record of the batch
        monkeypatch.setattr(node.manager._applying, "flush", AsyncMock())  # it takes a while
        assert (await node.manager.take_snapshot()).end_offset == before + 9
        await adding


async def test_a_failing_snapshot_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as node:
        await copied(node.manager, 5)

        def rotten() -> object:
            yield b"\x01", b"row"
            raise CorruptData("a rotten row", source="view", position=0)

        monkeypatch.setattr(node.view, "rows_in_key_order", rotten)
        with pytest.raises(CorruptData, match="rotten"):
            await write_snapshot(
                node.log, view_now(node.view), slice_rows=1, check_open=lambda: None
            )
        monkeypatch.undo()
        assert list((tmp_path / "metadata").rglob("*.part")) == []
        snapshot = await write_snapshot(
            node.log, view_now(node.view), slice_rows=1, check_open=lambda: None
        )
        assert snapshot == SnapshotId(node.view.applied_offset + 1, 1)
