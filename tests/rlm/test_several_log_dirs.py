"""A broker with several log directories (JBOD): replicas move, disks go, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.control.run_events import ClaimLost, LostRangeRecorded, PartitionClaimed
from rlm.control.why_not import WhyNot
from rlm.copy.hold import HoldLimits
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import CLEANED_UP_AFTER_S, LIMITS, Node, new_world
from tests.rlm.virtual_time import run_virtually

A_FEW_SCANS_S = 30.0
MOVING = "orders-0.0123456789abcdef0123456789abcdef"


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "first"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return new_log_dir(tmp_path / "second")


def move_to(log: KafkaLog, log_dir: Path) -> KafkaLog:
    """What ReplicaAlterLogDirsThread ends with: the future replica takes the name, the old goes."""
    future = log_dir / f"{MOVING}-future"
    if not future.exists():
        shutil.copytree(log.directory, future)
    moved = replace(log, log_dir=log_dir)
    log.directory.rename(log.log_dir / f"{MOVING}-delete")
    future.rename(moved.directory)
    moved.set_high_watermark(25)
    return moved


def claims(node: Node) -> list[str]:
    return [
        type(each).__name__
        for each in node.events
        if isinstance(each, PartitionClaimed | ClaimLost | LostRangeRecorded)
    ]


def test_a_replica_that_moves_between_directories_goes_on_under_its_claim(
    tmp_path: Path, orders: KafkaLog, second: Path
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, second))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            shutil.copytree(orders.directory, second / f"{MOVING}-future")
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.remote_log.problems() == ()
            moved = move_to(orders, second)
            moved.write(20, 30, end=35)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert claims(node) == ["PartitionClaimed"]
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("step", ["before put .log", "after put .log", "before put .rsm-manifest"])
def test_a_replica_that_moves_while_it_is_copied_is_copied_whole_and_once(
    tmp_path: Path, orders: KafkaLog, second: Path, step: str
) -> None:
    whole = {base: orders.log_bytes(base) for base in (0, 10)}
    moved: list[KafkaLog] = []

    async def move(name: str) -> None:
        if name == step and not moved:
            moved.append(move_to(orders, second))

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, second))
        async with world.boot(data_plane=True, hook=move) as node:
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert moved
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            for row in node.metadata.list_remote_log_segments(orders.partition):
                pieces = [piece async for piece in node.parts.reads.open_log(row.segment_id.id)]
                assert b"".join(pieces) == whole[row.start_offset]
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_a_look_in_the_middle_of_a_move_finds_two_and_copies_from_neither(
    tmp_path: Path, orders: KafkaLog, second: Path
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, second))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            shutil.copytree(orders.directory, second / "orders-0")
            twin = replace(orders, log_dir=second)
            twin.write(20, 30, end=35)
            await asyncio.sleep(A_FEW_SCANS_S)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            orders.directory.rename(orders.log_dir / f"{MOVING}-delete")
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert claims(node) == ["PartitionClaimed"]
            await node.remote_log.close()

    run_virtually(main)


def _unmounted(log: KafkaLog) -> Callable[[], None]:
    aside = log.log_dir.with_name("aside")
    log.log_dir.rename(aside)
    log.log_dir.mkdir()  # the empty mount point

    def mount() -> None:
        log.log_dir.rmdir()
        aside.rename(log.log_dir)

    return mount


def test_a_disk_that_goes_and_comes_back_loses_nothing_and_is_not_taken_for_deleted(
    tmp_path: Path, orders: KafkaLog, second: Path
) -> None:
    other = KafkaLog.create(second, "other", entries=((0, 0),))
    other.write(0, 10, end=15)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, second))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            mount = _unmounted(orders)
            other.write(10, 20, end=25)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(other.partition) == [(0, 9), (10, 19)]
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            mount()
            orders.write(20, 30, end=35)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert "LostRangeRecorded" not in claims(node)
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_another_brokers_disk_in_the_place_of_ours_stops_copying_until_it_is_gone(
    tmp_path: Path, orders: KafkaLog, second: Path
) -> None:
    meta = orders.log_dir / "meta.properties"
    ours = meta.read_bytes()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, second))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            meta.write_bytes(ours.replace(b"node.id=1", b"node.id=2"))
            orders.write(20, 30, end=35)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert "broker 2" in (node.parts.looks.error or "")
            meta.write_bytes(ours)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert node.parts.looks.error is None
            await node.remote_log.close()

    run_virtually(main)


def test_what_is_held_of_a_replica_is_copied_after_it_moved(
    tmp_path: Path, orders: KafkaLog, second: Path
) -> None:
    down = True

    async def outage(name: str) -> None:
        while down and name == "before put .log":
            await asyncio.sleep(LIMITS.stall_deadline_s)

    async def main() -> None:
        nonlocal down
        world = new_world(tmp_path, (orders.log_dir, second))
        room = HoldLimits(bytes_max=2**40, free_bytes_min=1)
        async with world.boot(data_plane=True, hook=outage, hold=room) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            moved = move_to(orders, second)
            for base in (0, 10):
                moved.delete_segment(base)
            moved.set_epochs((0, 20))
            shutil.rmtree(orders.log_dir / f"{MOVING}-delete")
            moved.write(20, 30, end=35)
            await asyncio.sleep(A_FEW_SCANS_S)
            down = False
            await asyncio.sleep(CLEANED_UP_AFTER_S + LIMITS.backoff_max_s)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert "LostRangeRecorded" not in claims(node)
            await node.remote_log.close()

    run_virtually(main)
