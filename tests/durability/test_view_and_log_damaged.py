"""The view is lost and the log is damaged: what the view held is no tail that may be cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.log.log_limits import LogLimits
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.manager.manager import MetadataLimits
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.metadata_node import Node, copied, open_node, until

FLUSH_RECORDS = 20


async def flushed_by_itself(home: Path, disk: CrashDisk) -> Node:
    """A node in whose log the time for a recovery point never comes."""
    node = await open_node(
        home,
        disk=disk,
        limits=MetadataLimits(view_flush_records=FLUSH_RECORDS),
        log_limits=LogLimits(recovery_point_interval_s=3_600.0),
    )
    before = node.view.flushed_offset
    await copied(node.manager, FLUSH_RECORDS)
    await until(lambda: node.view.flushed_offset > before)
    return node


async def test_damage_below_what_a_lost_view_had_flushed_is_never_cut(tmp_path: Path) -> None:
    disk = CrashDisk()
    node = await flushed_by_itself(tmp_path, disk)
    flushed = node.view.flushed_offset
    left = disk.copy()
    (newest,) = await node.log.read(flushed, limit=1)
    await node.close()
    shutil.rmtree(tmp_path / "view")
    directory = tmp_path / "metadata" / PARTITION_DIRECTORY
    (name,) = [each for each in left.list_names(directory) if each.endswith(".log")]
    left.damage(directory / name, left.read(directory / name).index(newest.value))
    with pytest.raises(CorruptData, match="was durable here"):
        await open_node(tmp_path, disk=left, boot=2)
