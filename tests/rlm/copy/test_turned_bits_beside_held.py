"""A turned bit in a leader epoch, of a checkpoint or a batch, which no checksum tells, gives up no
record that is to be held.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.log_names import LOG_SUFFIX, segment_file_name
from rlm.leadership.leadership import Leads, LocalLogStart
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    ROOM,
    NoQuorum,
    Outage,
    lost,
    units,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually

BELOW = (0, 10, 20, 30, 40)
ALL = [(base, base + 9) for base in (*BELOW, 50)]


@pytest.mark.parametrize("outage", [Outage, NoQuorum])
def test_a_lower_start_of_the_logs_first_epoch_does_not_hide_held_segments(
    tmp_path: Path, outage: type[Outage] | type[NoQuorum]
) -> None:
    """Whether a claim has recorded its epochs or not."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0), (1, 50)))
    log.write(*BELOW, end=50, epoch=0)
    log.write(50, 60, end=65, epoch=1)
    broker, trouble = FakeBroker({("orders", 0): Leads(1, 65)}), outage()

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hook=trouble, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            for base in BELOW:
                log.delete_segment(base)
            broker.local_start = LocalLogStart(50, 1)
            log.set_epochs((1, 10))  # "1 50", a bit of its digit turned
            await asyncio.sleep(A_FEW_SCANS_S)
            trouble.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(log.partition) == ALL

    run_virtually(main)


def test_a_lower_epoch_of_a_log_that_retention_emptied_gives_up_nothing(tmp_path: Path) -> None:
    """No batch is left that could contradict it."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((5, 0),))
    log.write(*BELOW, 50, end=50, epoch=5)
    broker, store = FakeBroker({("orders", 0): Leads(5, 50)}), Outage()

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hook=store, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            for base in BELOW:
                log.delete_segment(base)
            broker.local_start = LocalLogStart(50, 5)
            log.set_epochs((4, 50))  # "5 50", a bit of its epoch turned
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == [str(base) for base in BELOW]
            store.lasts = False
            log.set_epochs((5, 50))
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(log.partition) == ALL[:-1]

    run_virtually(main)


def test_a_higher_start_of_a_held_segments_first_epoch_gives_up_nothing(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 40),))
    log.write(40, 50, 60, end=65, epoch=0)
    broker, store = FakeBroker({("orders", 0): Leads(0, 65)}), Outage()
    broker.local_start = LocalLogStart(40, 0)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hook=store, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            log.delete_segment(40)
            log.delete_segment(50)
            broker.local_start = LocalLogStart(60, 0)
            log.set_epochs((0, 60))
            await asyncio.sleep(A_FEW_SCANS_S)
        (unit,) = (tmp_path / "hold").glob(f"*/*/*/{40:020d}-*/leader-epoch-checkpoint")
        true = unit.read_bytes()
        unit.write_bytes(true.replace(b"0 40", b"0 44"))
        store.lasts = False
        async with world.boot(data_plane=True, broker=broker, hook=store, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert str(unit) in "\n".join(each.text for each in node.remote_log.node_problems())
            unit.write_bytes(true)
        async with world.boot(data_plane=True, broker=broker, hook=store, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(log.partition) == [(40, 49), (50, 59)]

    run_virtually(main)


def test_a_higher_start_of_the_logs_first_epoch_hides_no_head_of_what_is_held(
    tmp_path: Path,
) -> None:
    """No batch contradicts it, as DeleteRecords leaves such a checkpoint, too: the broker's log
    start does, and the batches tell the epochs below.
    """
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25, epoch=0)
    broker, store = FakeBroker({("orders", 0): Leads(0, 25)}), Outage()
    broker.local_start = LocalLogStart(0, 0)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hook=store) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
        log.set_epochs((0, 8))  # "0 0", a bit of its offset turned
        async with world.boot(data_plane=True, broker=broker, hook=store, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            log.delete_segment(0)
            log.delete_segment(10)
            broker.local_start = LocalLogStart(20, 0)
            await asyncio.sleep(A_FEW_SCANS_S)
            store.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(log.partition) == [(0, 9), (10, 19)]
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert state.lost_ranges == ()

    run_virtually(main)


@pytest.mark.parametrize("held_before", [True, False])
def test_what_is_held_under_a_turned_topic_id_is_copied_once_that_is_right_again(
    tmp_path: Path, *, held_before: bool
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, end=15)
    broker, store = FakeBroker({("orders", 0): Leads(0, 15)}), Outage()
    broker.ids = {"orders": log.partition.topic_id}
    path = log.directory / "partition.metadata"
    true = path.read_bytes()

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hook=store, hold=ROOM) as node:
            if held_before:
                await node.remote_log.start()
                await asyncio.sleep(A_FEW_SCANS_S)
            path.write_bytes(true.replace(b"topic_id: A", b"topic_id: Q"))
            log.write(10, 20, 30, end=35)
            broker.words["orders", 0] = Leads(0, 35)
            if not held_before:
                await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            for base in (0, 10, *((20,) if held_before else ())):
                log.delete_segment(base)
            broker.local_start = LocalLogStart(30 if held_before else 20, 0)
            await asyncio.sleep(A_FEW_SCANS_S)
            path.write_bytes(true)
            store.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(log.partition) == [(0, 9), (10, 19), (20, 29)]
            assert units(tmp_path) == []

    run_virtually(main)


def test_a_segment_whose_only_batch_has_a_turned_epoch_is_held(tmp_path: Path) -> None:
    """Its records are sound; before it is copied the batch is fetched from another replica."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 11, 20, end=25, epoch=0)
    path = log.directory / segment_file_name(10, LOG_SUFFIX)
    batch = bytearray(path.read_bytes())
    batch[15] ^= 1
    path.write_bytes(batch)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, hook=Outage(), hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "11"]

    run_virtually(main)
