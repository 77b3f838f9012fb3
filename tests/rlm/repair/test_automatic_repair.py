"""What readers and scrubs met is mended by itself: in turn, and within bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlm.node_files.kill_switches import Switch
from rlm.repair.repair_looks import LOOK_AGAIN_MAX_S
from rlm.repair.repair_run import Outcome
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.repairing import (
    copied,
    everything,
    keys_of,
    met,
    row_at,
    scrubbed,
    whole,
)
from tests.rlm.virtual_time import run_virtually


def test_what_a_reader_met_is_told_and_mended_by_itself_where_that_is_asked_for(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            assert await node.repairs.run_automatically() is None, "nobody met it"
            with pytest.raises(CorruptData):
                await everything(node, orders)
            (problem,) = node.repairs.problems()
            assert "reads found 1 damaged segments" in problem.text
            assert "`strandline repair --topic orders --partition 0`" in problem.text
            assert node.repairs.damaged == 1
            run = await node.repairs.run_automatically()
            assert run is not None
            assert [each.outcome for each in run.segments] == [Outcome.REPAIRED]
            assert (node.repairs.problems(), node.repairs.damaged) == ((), 0)
            assert await everything(node, orders) == whole(orders)

    run_virtually(main)


def test_the_automatic_mode_is_bounded_by_the_hour(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            node.repairs.limits = replace(node.repairs.limits, per_hour_max=2)
            for start in (0, 10, 20):
                row = row_at(node, orders, start)
                await node.store.damage(keys_of(row).log)
                with pytest.raises(CorruptData):
                    async for _ in node.parts.reads.open_log(row.segment_id.id):
                        pass
            run = await node.repairs.run_automatically()
            assert run is not None
            assert (len(run.segments), node.repairs.damaged) == (2, 1)
            assert "repair.per_hour_max" in run.text
            await asyncio.sleep(3601)
            await node.repairs.run_automatically()
            assert node.repairs.damaged == 0

    run_virtually(main)


def test_what_was_found_whole_is_looked_at_again_once_a_reader_meets_damage(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            await world.scrubs.add([scrubbed(orders, old)])
            run = await node.repairs.run_automatically()
            assert run is not None
            assert (run.checked, run.segments) == (1, [])
            assert await node.repairs.run_automatically() is None, "it was answered just now"
            await node.store.damage(keys_of(old).log)
            await met(node, old)
            run = await node.repairs.run_automatically()
            assert run is not None
            assert [each.outcome for each in run.segments] == [Outcome.REPAIRED]

    run_virtually(main)


def test_what_was_found_whole_is_looked_at_again_after_a_while(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            await world.scrubs.add([scrubbed(orders, old)])
            await node.repairs.run_automatically()
            await node.store.damage(keys_of(old).log)
            await asyncio.sleep(LOOK_AGAIN_MAX_S + 1)
            run = await node.repairs.run_automatically()
            assert run is not None
            assert [each.outcome for each in run.segments] == [Outcome.REPAIRED]

    run_virtually(main)


def test_what_cannot_be_repaired_keeps_no_other_waiting(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            node.repairs.limits = replace(node.repairs.limits, per_hour_max=2)
            for start in (0, 10):
                row = row_at(node, orders, start)
                await node.store.damage(keys_of(row).log)
                await met(node, row)
                orders.damage(start)
            run = await node.repairs.run_automatically()
            assert run is not None
            assert [each.outcome for each in run.segments] == [Outcome.UNREPAIRABLE] * 2
            row = row_at(node, orders, 20)
            await node.store.damage(keys_of(row).log)
            await met(node, row)
            await asyncio.sleep(3601)
            run = await node.repairs.run_automatically()
            assert run is not None
            assert run.segments[0].outcome is Outcome.REPAIRED, "what was never looked at first"
            looks = 0
            for _ in range(48):  # a day
                await asyncio.sleep(1800)
                run = await node.repairs.run_automatically()
                looks += 0 if run is None else run.checked
            assert 2 * 4 <= looks <= 2 * 8, "at longer and longer intervals, and never for good"

    run_virtually(main)


def test_what_may_not_be_repaired_now_costs_no_look(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            row = row_at(node, orders, 10)
            await node.store.damage(keys_of(row).log)
            await met(node, row)
            await node.parts.given.switches.pause(Switch.DELETING, by="an admin", why="a look")
            run = await node.repairs.run_automatically()
            assert run is None or run.checked == 0
            await node.parts.given.switches.resume(Switch.DELETING, by="an admin")
            run = await node.repairs.run_automatically()
            assert run is not None
            assert [each.outcome for each in run.segments] == [Outcome.REPAIRED]

    run_virtually(main)
