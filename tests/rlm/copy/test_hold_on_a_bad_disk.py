"""A disk that fails under the hold: what is held stays held, nothing is taken for a gap, and it is
told; only what a disk says is gone is gone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import rlm.local_log.hold_directory
import rlm.local_log.hold_tree
import tests.rlm.one_node
from kafka_formats.log_names import LEADER_EPOCH_CHECKPOINT_FILE
from rlm.control.node_problem import ProblemArea
from rlm.control.why_not import WhyNot
from rlm.local_log.hold_dirs import hold_directories
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    ROOM,
    NoQuorum,
    Outage,
    four_segments,
    holding,
    lost,
    retention,
    units,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

EIO = 5


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return four_segments(tmp_path)


class BadDisk:
    """`os` as hold directories find it: `fails` names the calls and paths that
    do.
    """

    def __init__(self, fails: Callable[[str, Path], bool]) -> None:
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        if name not in ("listdir", "stat", "rename"):
            return call

        def or_fail(path: Path, *more: Path) -> object:
            if self._fails(name, Path(path)):
                raise OSError(EIO, os.strerror(EIO), str(path))
            return call(path, *more)

        return or_fail


@contextmanager
def bad_disk(fails: Callable[[str, Path], bool]) -> Iterator[None]:
    disk = BadDisk(fails)
    with (
        patch.object(rlm.local_log.hold_directory, "os", disk),
        patch.object(rlm.local_log.hold_tree, "os", disk),
    ):
        yield


def held_back(node: Node) -> tuple[WhyNot | None, str]:
    page = node.remote_log.statuses()[0]
    return page.why_not_copying, page.why_not_text


def problem_areas(node: Node) -> list[ProblemArea]:
    assert node.hold is not None
    return [each.area for each in node.hold.problems()]


def test_what_a_crash_left_and_the_disk_does_not_remove_keeps_no_node_from_starting(
    tmp_path: Path, orders: KafkaLog
) -> None:
    half = tmp_path / "hold" / "cluster-1" / "orders-0" / str(orders.partition.topic_id)
    (half / ".removing-x").mkdir(parents=True)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        with bad_disk(lambda call, path: call == "listdir" and path.name == ".removing-x"):
            async with holding(world, Outage()) as node:
                assert problem_areas(node) == [ProblemArea.HOLD]
                assert [each for each in units(tmp_path) if each.isdigit()] == ["0", "10", "20"]
        async with holding(world, Outage()) as node:
            assert problem_areas(node) == []
            assert not (half / ".removing-x").exists()

    run_virtually(main)


def test_nothing_is_lost_while_the_disk_does_not_say_what_is_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage):
            pass
        retention(orders, 0, 10, start=20)
        outage.lasts = False
        async with world.boot(hook=outage, data_plane=True, hold=ROOM) as node:
            with bad_disk(lambda call, path: call == "listdir" and path.name == "orders-0"):
                await node.remote_log.start()
                await asyncio.sleep(A_FEW_SCANS_S)
                assert problem_areas(node) == [ProblemArea.HOLD]
                assert held_back(node)[0] is WhyNot.NOT_SCANNED
                assert "Input/output error" in held_back(node)[1]
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []
            assert problem_areas(node) == []

    run_virtually(main)


def test_a_held_segment_that_the_disk_does_not_read_is_waited_for_and_told(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage):
            pass
        retention(orders, 0, 10, start=20)
        outage.lasts = False
        (unit,) = (tmp_path / "hold").glob("*/orders-0/*/00000000000000000010-*")
        checkpoint = unit / LEADER_EPOCH_CHECKPOINT_FILE
        whole = checkpoint.read_bytes()
        checkpoint.write_bytes(b"not a checkpoint")
        async with world.boot(hook=outage, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert held_back(node)[0] is WhyNot.UNUSABLE_DIRECTORY
            assert str(unit) in held_back(node)[1]
            assert problem_areas(node) == [ProblemArea.HOLD]
            assert node.finished(orders.partition) == []
            checkpoint.write_bytes(whole)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []
            assert problem_areas(node) == []

    run_virtually(main)


@pytest.mark.parametrize("call", ["stat", "rename"])
def test_a_held_segment_at_which_the_disk_fails_once_is_held_as_before(
    tmp_path: Path, orders: KafkaLog, call: str
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            retention(orders, 0, 10, start=20)
            with bad_disk(lambda name, _: name == call):
                await asyncio.sleep(A_FEW_SCANS_S)
                assert units(tmp_path) == ["0", "10", "20"]
                assert problem_areas(node) == ([ProblemArea.HOLD] if call == "stat" else [])
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert units(tmp_path) == []
            assert problem_areas(node) == []

    run_virtually(main)


def test_what_cannot_be_let_go_now_is_let_go_later_for_the_same_reason(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            outage.lasts = False
            with bad_disk(lambda name, _: name == "rename"):
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert units(tmp_path) == ["0", "10", "20"]
                assert problem_areas(node) == [ProblemArea.HOLD]
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == []
            assert problem_areas(node) == []

    run_virtually(main)


@pytest.mark.parametrize("outage", [Outage, NoQuorum])
def test_what_is_held_on_a_disk_that_was_away_is_copied_once_that_is_back(
    tmp_path: Path, orders: KafkaLog, outage: type[Outage] | type[NoQuorum]
) -> None:
    elsewhere = KafkaLog.create(new_log_dir(tmp_path / "kafka2"), "others", entries=((0, 0),))
    elsewhere.write(0, end=5)
    disk = [tmp_path / "kafka", tmp_path / "hold"]
    trouble = outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, elsewhere.log_dir))
        async with holding(world, trouble) as node:
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            for each in disk:
                each.rename(each.with_suffix(".away"))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert problem_areas(node) == [ProblemArea.HOLD]
            for each in disk:
                each.with_suffix(".away").rename(each)
            trouble.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert units(tmp_path) == []
            assert problem_areas(node) == []

    run_virtually(main)


@pytest.mark.parametrize("starts", ["empty", "full"])
def test_what_is_held_on_a_disk_that_is_mounted_over_another_directory_is_copied(
    tmp_path: Path, orders: KafkaLog, starts: str
) -> None:
    """The mount point itself has a hold directory, too, in which units are made meanwhile."""
    elsewhere = KafkaLog.create(new_log_dir(tmp_path / "kafka2"), "others", entries=((0, 0),))
    elsewhere.write(0, 10, end=15)
    hold = tmp_path / "hold"
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, elsewhere.log_dir))
        async with holding(world, outage):
            retention(orders, 0, 10, start=20)
        orders.log_dir.rename(tmp_path / "log.away")
        if starts == "empty":
            hold.rename(tmp_path / "away")
            new_log_dir(orders.log_dir)
        else:
            (tmp_path / "log.away").rename(orders.log_dir)
        async with holding(world, outage) as node:
            if starts == "full":
                orders.log_dir.rename(tmp_path / "log.away")
                hold.rename(tmp_path / "away")
                new_log_dir(orders.log_dir)
                hold.mkdir()
                (hold / "cluster-1").mkdir()
                await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(A_FEW_SCANS_S)
            shutil.rmtree(hold)
            shutil.rmtree(orders.log_dir)
            (tmp_path / "away").rename(hold)
            (tmp_path / "log.away").rename(orders.log_dir)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert units(tmp_path) == []
            assert problem_areas(node) == []

    run_virtually(main)


def test_while_the_disk_with_held_segments_is_away_nothing_is_recorded_as_lost(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Another directory is at its place: an empty mount point."""
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            (tmp_path / "hold").rename(tmp_path / "away")
            (tmp_path / "hold" / "cluster-1").mkdir(parents=True)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert held_back(node)[0] is WhyNot.UNUSABLE_DIRECTORY
            assert "mount the right disk" in held_back(node)[1]
            assert problem_areas(node) == [ProblemArea.HOLD]
            assert lost(node.events) == []

    run_virtually(main)


def of_the_missing(dirs: Sequence[Path], log_dirs: Sequence[Path], *, own_name: str) -> Any:
    """As if the others were on another mount."""
    missing = [each for each in log_dirs if not each.exists()]
    return hold_directories(dirs, missing, own_name=own_name)


def test_what_is_held_of_a_log_directory_that_came_after_the_start_is_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    elsewhere = KafkaLog.create(new_log_dir(tmp_path / "kafka2"), "others", entries=((0, 0),))
    elsewhere.write(0, 10, end=15)
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, elsewhere.log_dir))
        async with holding(world, outage):
            retention(orders, 0, 10, start=20)
        outage.lasts = False
        orders.log_dir.rename(tmp_path / "away")
        with patch.object(tests.rlm.one_node, "hold_directories", of_the_missing):
            async with holding(world, outage) as node:
                (tmp_path / "away").rename(orders.log_dir)
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert lost(node.events) == []
                assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)
