"""Links to active segments while leaders claim the partition that know nothing of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.control.run_events import HoldReleased
from rlm.copy.hold import Hold
from rlm.copy.partition_work import PartitionWork
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from rlmm.segment import Incarnation
from tests.rlm.copy.test_active_hold import links, quiet_log, retention_takes_all
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S, holding, units
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.planner_facts import DIRECTORY
from tests.rlm.virtual_time import run_virtually


def test_a_claim_amid_the_pass_that_makes_the_unit_does_not_give_its_records_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look has found them gone, and their unit is not made yet."""
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): NotLeading()})
    inner = Hold.after_look

    async def main() -> None:
        claiming, claimed, passing = (asyncio.Event() for _ in range(3))

        async def hook(name: str) -> None:
            if name == "before claim_partition":
                claiming.set()
                await claimed.wait()

        async def after_look(self: Hold, works: Iterable[PartitionWork]) -> None:
            await passing.wait()
            await inner(self, works)

        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, hook, broker=broker) as node:
            assert links(tmp_path) == ["0"]
            broker.words["orders", 0] = Leads(0, 35)
            await claiming.wait()
            monkeypatch.setattr(Hold, "after_look", after_look)
            retention_takes_all(log)
            broker.local_start = LocalLogStart(35, 0)
            await asyncio.sleep(A_FEW_SCANS_S)
            claimed.set()
            await asyncio.sleep(A_FEW_SCANS_S)
            passing.set()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(log.partition) == [(0, 34)]
            assert (units(tmp_path), links(tmp_path)) == ([], [])

    run_virtually(main)


def test_records_that_only_a_follower_had_are_missed_aloud(tmp_path: Path) -> None:
    """The leader, whose log begins behind them, has recorded its log start."""
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): NotLeading()})
    at_the_leader = KafkaLog.create(new_log_dir(tmp_path / "leader"), "orders", entries=((0, 35),))
    at_the_leader.write(35, end=40)
    leader = FakeBroker({("orders", 0): Leads(0, 40)}, local_start=LocalLogStart(35, 0))

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            beside = replace(world, log_dirs=(at_the_leader.log_dir,))
            incarnation = Incarnation(1, DIRECTORY, 1)
            other, _ = beside.node(node.metadata, incarnation, broker=leader)
            await other.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert (state.log_start_offset, state.lost_ranges) == (35, ())
            assert links(tmp_path) == ["0"]
            retention_takes_all(log)
            await asyncio.sleep(A_FEW_SCANS_S)
            missed = [each for each in node.events if isinstance(each, HoldReleased)]
            assert [(each.start, each.end, each.missed) for each in missed] == [(0, 34, True)]
            assert (units(tmp_path), links(tmp_path)) == ([], [])

    run_virtually(main)
