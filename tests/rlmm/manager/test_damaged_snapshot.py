"""A running node finds its newest snapshot damaged, and takes another one of its view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import CorruptData, RetryLater
from rlmm.log.disk import OsDisk
from rlmm.log.log_limits import LogLimits
from rlmm.log.snapshot_files import DAMAGED_SUFFIX, check_snapshot
from rlmm.manager.metadata_limits import MetadataLimits
from rlmm.metadata_log import SnapshotSink
from rlmm.raft.messages import SnapshotId as CoreSnapshotId
from tests.rlmm.metadata_node import copied, running_node, until

WHOLE = LogLimits(segment_bytes_max=1_000)
CUT = LogLimits(segment_bytes_max=1_000, retain_bytes_max=0)


def _is_whole(path: Path) -> bool:
    try:
        check_snapshot(OsDisk(), path)
    except CorruptData:
        return False
    return True


@pytest.mark.parametrize("limits", [WHOLE, CUT], ids=["log from 0", "log from the snapshot"])
async def test_another_one_is_taken_although_nothing_was_recorded(
    tmp_path: Path, limits: LogLimits
) -> None:
    """It has the damaged one's name."""
    async with running_node(tmp_path, log_limits=limits) as node:
        await copied(node.manager, 10)
        snapshot = await node.manager.take_snapshot()
        needed = node.log.describe().log_start_offset > 0
        assert needed is (limits is CUT)
        path = node.log._directory.snapshot_path(snapshot)
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
        found = CorruptData("its CRC", source=str(path))
        damaged = CoreSnapshotId(*snapshot)
        assert await node.log.driver.snapshots.found(damaged, found)
        assert node.log.describe().troubles[0][0] == "damaged_snapshot"
        await until(lambda: path.exists() and _is_whole(path))
        await until(lambda: node.log.latest_snapshot() == snapshot)
        await until(lambda: damaged in node.log.driver.core.replica.log.snapshots)
        assert path.with_name(path.name + DAMAGED_SUFFIX).exists() is not needed
        await until(lambda: bool(node.log.describe().troubles) is not needed)
        assert node.log.driver.failure is None


async def test_another_one_that_fails_is_tried_again_although_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sole voter has no other copy of it than its view."""
    limits = MetadataLimits(snapshot_retry_s=0.01)
    async with running_node(tmp_path, limits=limits, log_limits=CUT) as node:
        await copied(node.manager, 10)
        snapshot = await node.manager.take_snapshot()
        path = node.log._directory.snapshot_path(snapshot)
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
        begin, tries = node.log.begin_snapshot, []

        async def begins_at_the_third(*given: Any, **named: Any) -> SnapshotSink:
            tries.append(given)
            if len(tries) < 3:
                raise RetryLater("the disk is full")
            return await begin(*given, **named)

        monkeypatch.setattr(node.log, "begin_snapshot", begins_at_the_third)
        found = CorruptData("its CRC", source=str(path))
        assert await node.log.driver.snapshots.found(CoreSnapshotId(*snapshot), found)
        await until(lambda: path.exists() and _is_whole(path))
        await until(lambda: not node.log.describe().troubles)
        assert len(tries) == 3
