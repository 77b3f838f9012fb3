"""Held records reach the tier, or stay recorded as lost, where the tier, the log and the cleaner
tell different stories about their offsets.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats import offset_checkpoint
from rlm.copy.hold import HoldLimits
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
from tests.rlm.replicas import cluster, remove
from tests.rlm.virtual_time import run_virtually

HALF_AN_HOUR_S = 1_800.0


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return four_segments(tmp_path)


def served(node: Node, log: KafkaLog, end: int) -> list[tuple[int, int, int]]:
    """First and last offset of each serving segment up to `end`, and its first epoch there."""
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    found = node.metadata.served_segments(state, 0, end)
    return [(each.first_offset, each.last_offset, by.leader_epochs[0][0]) for each, by in found]


def log_of_the_cleaner(log: KafkaLog) -> None:
    """The broker's cleaner was at work in the partition once."""
    path = log.log_dir / offset_checkpoint.CLEANER_FILE
    path.write_bytes(offset_checkpoint.encode({("orders", 0): 5}))


def test_a_new_leaders_records_are_held_where_the_tier_has_those_of_the_old_one(
    tmp_path: Path, orders: KafkaLog
) -> None:
    quorum = NoQuorum(lasts=False)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=quorum, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
        quorum.lasts = True
        for base in (10, 20, 30):
            orders.delete_segment(base)
        orders.write(10, 20, 25, end=27, epoch=5)  # an unclean election
        orders.set_epochs((0, 0), (5, 10))
        async with holding(world, quorum) as node:
            retention(orders, 0, 10, start=20, epoch=5)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["10", "20"]
            quorum.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert served(node, orders, 24) == [(0, 9, 0), (10, 19, 5), (20, 24, 5)]

    run_virtually(main)


def test_what_a_leader_held_before_two_unclean_elections_is_copied_after_the_second(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """It was down while the other one led, and its first pass is before its claim."""
    other = KafkaLog.create(new_log_dir(tmp_path / "other"), "orders", entries=((0, 0), (2, 10)))
    other.write(0, end=10)
    other.write(10, 20, 30, end=35, epoch=2)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        orders.write(10, 20, 30, end=35, epoch=1)
        orders.set_epochs((0, 0), (1, 10))
        async with holding(world, Outage()):
            retention(orders, 0, 10, start=20, epoch=1)
            await asyncio.sleep(A_FEW_SCANS_S)
        async with replace(world, log_dirs=(other.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert served(node, orders, 29) == [(0, 9, 0), (10, 19, 2), (20, 29, 2)]
        world.boots += 1
        async with holding(world, Outage()):
            assert units(tmp_path) == ["10", "20"], "the broker starts after the node"
        orders.set_epochs((1, 20), (3, 35))
        orders.write(35, end=40, epoch=3)
        async with world.boot(data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert served(node, orders, 29) == [(0, 9, 0), (10, 19, 1), (20, 29, 1)]
            assert units(tmp_path) == []

    run_virtually(main)


def test_a_unit_at_whose_end_an_epoch_begins_joins_the_log_after_a_restart(
    tmp_path: Path, orders: KafkaLog
) -> None:
    orders.write(20, 30, end=35, epoch=2)
    orders.set_epochs((0, 0), (2, 20))
    quorum = NoQuorum(lasts=True)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, quorum):
            retention(orders, 0, 10, start=20, epoch=2)
            await asyncio.sleep(A_FEW_SCANS_S)
        async with holding(world, quorum) as node:
            quorum.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


def test_an_epoch_that_begins_at_a_units_end_after_it_was_held_is_known_after_a_restart(
    tmp_path: Path, orders: KafkaLog
) -> None:
    quorum = NoQuorum(lasts=True)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, quorum):
            orders.write(30, 40, end=45, epoch=3)
            orders.set_epochs((0, 0), (3, 30))
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(orders, 0, 10, 20, start=30, epoch=3)
            await asyncio.sleep(A_FEW_SCANS_S)
        async with holding(world, quorum) as node:
            quorum.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29), (30, 39)]

    run_virtually(main)


def test_a_unit_keeps_its_epochs_where_the_log_forgets_them_as_another_one_begins_at_its_end(
    tmp_path: Path, orders: KafkaLog
) -> None:
    quorum = NoQuorum(lasts=True)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, quorum):
            orders.write(30, 40, end=45, epoch=3)
            orders.set_epochs((3, 30))  # its files go later
            await asyncio.sleep(A_FEW_SCANS_S)
        async with holding(world, quorum) as node:
            retention(orders, 0, 10, 20, start=30, epoch=3)
            quorum.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29), (30, 39)]

    run_virtually(main)


def test_the_whole_one_of_two_files_for_the_same_offsets_stays_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()
    path = orders.directory / f"{0:020d}.log"
    whole = path.read_bytes()
    room = HoldLimits(bytes_max=2 * len(whole) + 100, free_bytes_min=1)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = cluster(orders, b1=range(20, 30))
        async with holding(world, outage, hold=room):
            path.unlink()
            path.write_bytes(whole[: len(whole) // 2])  # fetched again, and cut since
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
        outage.lasts = False
        async with holding(world, outage) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []

    run_virtually(main)


def test_a_good_file_in_the_place_of_a_damaged_one_is_held_beside_the_link_to_that(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = cluster(orders, b1=range(20, 30))
        async with holding(world, outage) as node:
            path = orders.directory / f"{0:020d}.log"
            good = bytearray(path.read_bytes())
            [held] = (tmp_path / "hold").glob("*/orders-0/*/*/" + path.name)
            path.unlink()
            path.write_bytes(good)
            good[65] ^= 1
            held.write_bytes(good)
            await asyncio.sleep(HALF_AN_HOUR_S)
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []
            assert units(tmp_path) == []

    run_virtually(main)


def test_damage_that_was_found_in_the_brokers_file_is_looked_for_in_the_link_once_that_is_gone(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = cluster(orders, b1=[*range(10), *range(20, 30)], b2=range(30))
        async with holding(world, outage) as node:
            damaged = bytearray(orders.log_bytes(0))
            damaged[65] ^= 1
            (orders.directory / f"{0:020d}.log").write_bytes(damaged)  # both links are this file
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(2 * HALF_AN_HOUR_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


def test_gaps_are_not_legal_over_a_held_segment(tmp_path: Path, orders: KafkaLog) -> None:
    log_of_the_cleaner(orders)
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            remove(orders, 10)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            [row, *_] = node.metadata.list_remote_log_segments(orders.partition)
            assert row.size_bytes > len(orders.log_bytes(0)), "it has the held batches, too"
            assert lost(node.events) == []

    run_virtually(main)


def test_a_lost_range_stays_where_a_segment_that_spans_it_has_no_batch_of_it(
    tmp_path: Path,
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, 40, end=45)
    log_of_the_cleaner(log)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        world.replicas = brokers = cluster(log, b1=range(20, 40))
        brokers.starts = {1: 20}
        (log.directory / f"{10:020d}.log").unlink()  # its index tells
        for _ in range(2):
            async with world.boot(data_plane=True) as node:
                await node.remote_log.start()
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                state = node.metadata.partition_state(log.partition)
                assert state is not None
                assert [(each.start, each.end) for each in state.lost_ranges] == [(10, 19)]
            # Kafka removes an orphaned index when it loads the log.
            for suffix in (".index", ".timeindex"):
                (log.directory / f"{10:020d}{suffix}").unlink(missing_ok=True)

    run_virtually(main)
