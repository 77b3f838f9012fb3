"""Gaps between what the store holds whole after a restart from a snapshot: what this machine has is
copied, and what lies behind is adopted, whatever becomes of the machine's meanwhile.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.control.reasons import told_after_s
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from rlm.reconcile.adoption_plan import WHY_HELD
from rlm.reconcile.reconciliation import compare
from rlmm.records.control_records import LogStart, LostRange
from tests.rlm.after_disaster import (
    ANEW,
    after_the_disaster,
    copied_then_ahead,
    later,
    lower,
    nothing,
    of_base,
    record_reconciled,
)
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S, ROOM, Outage, retention
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.replicas import Cluster, all_batches, cluster, remove
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Sealed segments 0-9 and 10-19."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_what_the_hold_alone_has_is_not_told_lost_and_is_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        away = True

        async def hook(step: str) -> None:
            if away and step == "before list":
                raise RetryLater("the store is away")

        async with anew.boot(data_plane=True, directory_id=ANEW, hook=hook, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(orders, 0, 10, 20, 30, start=40)
            away = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            told = [
                (each.start, each.end, each.why)
                for _, each in node.accepted
                if isinstance(each, LostRange)
            ]
            assert told == [(20, 29, WHY_HELD)]
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.lost_ranges) == (40, ())
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29), (30, 39)]

    run_virtually(main)


def test_a_gap_that_the_broker_can_fill_is_copied_not_lost(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            report = await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.lost_ranges == ()
            assert (state.next_offset, state.adopting) == (40, False)
            assert [each.start_offset for each in report.copied] == [20]
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert (found.whole, found.missing, found.unknown_count) == (4, [], 0)

    run_virtually(main)


def test_what_lies_behind_a_gap_that_local_retention_takes_is_adopted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Nothing can be copied after the restart until the broker has deleted all of it."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        outage = Outage()
        async with anew.boot(data_plane=True, directory_id=ANEW, hook=outage) as node:
            await record_reconciled(node)
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.adopting) == (20, True)
            retention(orders, 0, 10, 20, 30, start=40)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert [(each.start, each.end) for each in state.lost_ranges] == [(20, 29)]
            assert (state.next_offset, state.adopting) == (40, False)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (30, 39)]

    run_virtually(main)


@pytest.mark.parametrize("bases", [(20, 30), (20,)])
def test_damage_behind_a_gap_is_not_lost_that_the_store_has_whole(
    tmp_path: Path, orders: KafkaLog, bases: tuple[int, ...]
) -> None:
    """The broker's file is damaged at 35, which no replica has; it may reach over the gap, too."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        if bases == (20,):
            for base in (20, 30, 40):
                orders.delete_segment(base)
            orders.write(20, 40, end=45)
        batches = all_batches(orders)
        path = orders.directory / f"{bases[-1]:020}.log"
        data = bytearray(path.read_bytes())
        at = data.index(batches[35])
        data[at + len(batches[35]) - 3] ^= 1
        path.write_bytes(data)
        anew.replicas = Cluster({1: range(30)}, batches, ends={1: 30}, answer_bytes=100_000)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.adopting, state.lost_ranges) == (40, False, ())
            assert (30, 39) in node.finished(orders.partition)

    run_virtually(main)


@pytest.mark.parametrize("base", [0, 20])
def test_a_broker_that_leads_no_more_says_nothing_of_what_the_store_lacks(
    tmp_path: Path, orders: KafkaLog, base: int
) -> None:
    """Reading the stores takes long; the next leader may have more than this broker."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        if base:
            snapshot, _ = await copied_then_ahead(world, orders)
        else:  # the snapshot never heard of the partition
            async with world.boot(data_plane=True) as node:
                snapshot = await node.metadata.take_snapshot()
                assert (await node.remote_log.run_once()).complete
            later(orders)
        anew = await after_the_disaster(world, snapshot)
        keys = await of_base(world, base, ".rsm-manifest", ".log", ".indexes")
        await world.store.delete_many(keys)
        retention(orders, 0, 10, 20, 30, start=40)
        broker = FakeBroker({("orders", 0): Leads(0, 45)}, local_start=LocalLogStart(40, 0))

        async def hook(step: str) -> None:
            if step == "before list":
                broker.words[("orders", 0)] = NotLeading()

        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker, hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            said = [each for _, each in node.accepted if isinstance(each, LogStart | LostRange)]
            assert said == []
            assert node.remote_log.status(orders.partition).why_not_copying is WhyNot.NOT_LEADER

    run_virtually(main)


def test_an_adoption_that_waits_for_the_active_segment_is_told(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The new leader's borders are others: what the store lacks is not sealed here."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        for base in (20, 30, 40):
            orders.delete_segment(base)
        orders.write(20, end=45)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.NOT_ADOPTED
            assert "retention and repair of the partition wait" in page.why_not_text
            assert not (await node.remote_log.run_once()).complete
            assert told_after_s(WhyNot.NOT_ADOPTED) is not None
            orders.write(20, 45, end=50)
            await asyncio.sleep(A_FEW_SCANS_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.adopting, state.lost_ranges) == (45, False, ())
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.NO_SEALED_SEGMENT

    run_virtually(main)


def damaged_at_its_head(orders: KafkaLog, *bases: int) -> None:
    """Files vanish, and neither the log start nor the first epoch moves."""
    for base in bases:
        remove(orders, base)


@pytest.mark.parametrize("log_start", [0, 25])
def test_a_gap_that_the_broker_lost_is_fetched_from_its_replicas(
    tmp_path: Path, orders: KafkaLog, log_start: int
) -> None:
    """It is lost only below the broker's log start."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        anew.replicas = cluster(orders, b1=[], b2=range(40))
        damaged_at_its_head(orders, 0, 10, 20, 30)
        broker = FakeBroker({("orders", 0): Leads(0, 45)}, local_start=LocalLogStart(log_start, 0))
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            lost = [(20, log_start - 1)] if log_start else []
            assert [(each.start, each.end) for each in state.lost_ranges] == lost
            assert (state.next_offset, state.adopting) == (40, False)
            assert (30, 39) in node.finished(orders.partition)

    run_virtually(main)


@pytest.mark.parametrize("log_start", [0, 15])
def test_a_partition_unheard_of_begins_below_what_the_broker_lost(
    tmp_path: Path, orders: KafkaLog, log_start: int
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            snapshot = await node.metadata.take_snapshot()
            assert (await node.remote_log.run_once()).complete
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 0, ".rsm-manifest", ".log", ".indexes"))
        anew.replicas = cluster(orders, b1=[], b2=range(20))
        damaged_at_its_head(orders, 0, 10)
        broker = FakeBroker({("orders", 0): Leads(0, 25)}, local_start=LocalLogStart(log_start, 0))
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            begins = 10 if log_start else 0
            assert (state.log_start_offset, state.lost_ranges) == (begins, ())
            assert (state.next_offset, state.adopting) == (20, False)

    run_virtually(main)


def test_a_gap_below_a_first_epoch_that_was_begun_anew_is_waited_for_not_lost(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The leader-epoch-checkpoint was lost: all segments are on the disk."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        orders.set_epochs((0, 33))
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.next_offset, state.lost_ranges) == (20, ())
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.EPOCHS_MISSING

    run_virtually(main)
