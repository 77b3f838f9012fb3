"""One bit turns in a small file of the broker that has no checksum. The node believes the batches
and the broker instead, says what is wrong, and goes on once the file is right again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rlm.copy.hold import HoldLimits
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.planner_facts import epochs
from tests.rlm.virtual_time import run_virtually

PASSES_S = 2 * LIMITS.retention_interval_s + LIMITS.delete_delay_s + 600
ALL = [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]


def problems(node: Node) -> str:
    return "\n".join(each.text for each in node.remote_log.node_problems())


def two_epochs(tmp_path: Path) -> KafkaLog:
    """Epoch 1 begins at 20; the active segment, which begins at 50, ends at 55."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0), (1, 20)))
    log.write(0, 10, end=20, epoch=0)
    log.write(20, 30, 40, 50, end=55, epoch=1)
    return log


def test_a_turned_epoch_start_cuts_and_deletes_nothing_in_the_tier(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0), (1, 30)))
    log.write(0, 10, 20, 30, end=30, epoch=0)
    log.write(30, 40, 50, end=55, epoch=1)
    broker = FakeBroker({("orders", 0): Leads(1, 55)})

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(120)
            assert node.finished(log.partition) == ALL
            log.set_epochs((0, 0), (1, 10), (2, 55))
            broker.words["orders", 0] = Leads(2, 55)
            await asyncio.sleep(PASSES_S)
            assert node.finished(log.partition) == ALL
            assert "offset 10 is of epoch 1 by the checkpoint" in problems(node)
            log.set_epochs((0, 0), (1, 30), (3, 55))
            broker.words["orders", 0] = Leads(3, 55)
            log.write(50, end=60, epoch=1)
            log.set_epochs((0, 0), (1, 30), (3, 60))
            log.write(60, end=65, epoch=3)
            broker.words["orders", 0] = Leads(3, 65)
            await asyncio.sleep(PASSES_S)
            assert node.finished(log.partition) == [*ALL, (50, 59)]
            assert problems(node) == ""

    run_virtually(main)


def test_a_turned_topic_id_is_not_taken_for_another_topic(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, ids={"orders": log.partition.topic_id})

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(120)
            path = log.directory / "partition.metadata"
            true = path.read_bytes()
            path.write_bytes(true.replace(b"topic_id: A", b"topic_id: Q"))
            log.write(30, 40, end=45)
            broker.words["orders", 0] = Leads(0, 45)
            await asyncio.sleep(PASSES_S)
            assert list(node.metadata.partitions()) == [log.partition]
            assert f"but the broker has {log.partition.topic_id} for orders" in problems(node)
            path.write_bytes(true)
            await asyncio.sleep(PASSES_S)
            assert node.finished(log.partition) == ALL[:4]
            assert problems(node) == ""

    run_virtually(main)


def test_a_turned_epoch_start_below_the_first_file_cuts_nothing(tmp_path: Path) -> None:
    """No batch on the disk can contradict it: what is recorded stands."""
    log = two_epochs(tmp_path)
    broker = FakeBroker({("orders", 0): Leads(1, 55)})

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(120)
            for base in (0, 10, 20):
                log.delete_segment(base)
            broker.local_start = LocalLogStart(30, 1)
            log.set_epochs((1, 10), (2, 55))
            broker.words["orders", 0] = Leads(2, 55)
            await asyncio.sleep(PASSES_S)
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert state.lineage == epochs((0, 0), (1, 20), (2, 55))
            assert node.finished(log.partition) == ALL

    run_virtually(main)


def test_a_turned_epoch_in_the_hold_cuts_nothing(tmp_path: Path) -> None:
    log = two_epochs(tmp_path)
    broker = FakeBroker({("orders", 0): Leads(1, 55)})
    hold = HoldLimits(bytes_max=1 << 40, free_bytes_min=0)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hold=hold) as node:
            await node.remote_log.start()
            await asyncio.sleep(120)
            for base in (0, 10, 20, 30):
                log.delete_segment(base)
            broker.words["orders", 0] = NotLeading()
            log.write_across(50, 55, 60, epochs=(1, 2))
            log.write(60, end=65, epoch=2)
            log.set_epochs((1, 40), (2, 55))
            await asyncio.sleep(60)
            log.delete_segment(40)
            log.delete_segment(50)
            await asyncio.sleep(60)
        (unit,) = (tmp_path / "hold").glob(f"*/*/*/{50:020d}-*/leader-epoch-checkpoint")
        true = unit.read_bytes()
        unit.write_bytes(true.replace(b"1 40", b"0 40"))
        async with world.boot(data_plane=True, broker=broker, hold=hold) as node:
            await node.remote_log.start()
            log.set_epochs((2, 60), (3, 65))
            log.write(60, end=65, epoch=2)
            log.write(65, end=70, epoch=3)
            broker.local_start = LocalLogStart(60, 3)
            broker.words["orders", 0] = Leads(3, 70)
            await asyncio.sleep(PASSES_S)
            assert node.finished(log.partition) == ALL
            assert str(unit) in problems(node)
            unit.write_bytes(true)
        async with world.boot(data_plane=True, broker=broker, hold=hold) as node:
            await node.remote_log.start()
            await asyncio.sleep(PASSES_S)
            assert node.finished(log.partition) == [*ALL, (50, 59), (60, 64)]

    run_virtually(main)
