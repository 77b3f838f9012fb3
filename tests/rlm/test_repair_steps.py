"""A repair, killed at each of its steps: later lives of the node finish it and lose nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rlm.repair_run import Outcome, RepairState
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Steps, new_world, no_hook
from tests.rlm.test_repairs import (
    APPLY,
    GONE_AFTER_S,
    assert_tidy,
    everything,
    keys_of,
    only,
    repaired,
    row_at,
    whole,
)
from tests.rlm.virtual_time import run_virtually


def names_of_steps(tmp_path: Path, orders: KafkaLog) -> list[str]:
    """All steps of a repair that goes well."""
    steps = Steps()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=steps, data_plane=True) as node:
            await node.remote_log.run_once()
            await world.store.damage(keys_of(row_at(node, orders, 10)).log)
            del steps.names[:]
            await only(node)

    run_virtually(main)
    return steps.names


def test_a_repair_killed_at_any_step_is_finished_by_the_next(
    many_worlds: Path,
) -> None:
    def new_log(path: Path) -> KafkaLog:
        path.mkdir(parents=True)
        log = KafkaLog.create(new_log_dir(path / "kafka"), "orders", entries=((0, 0),))
        log.write(0, 10, 20, 30, end=35)
        return log

    names = names_of_steps(many_worlds / "all", new_log(many_worlds / "all"))
    assert "before COPY_SEGMENT_FINISHED" in names
    assert names.index("before get .log") < names.index("before COPY_SEGMENT_STARTED")
    for number, name in enumerate(names):
        path = many_worlds / str(number)
        orders = new_log(path)

        async def main(path: Path = path, orders: KafkaLog = orders, number: int = number) -> None:
            world = new_world(path, (orders.log_dir,))
            async with world.boot(data_plane=True) as node:
                await node.remote_log.run_once()
                await world.store.damage(keys_of(row_at(node, orders, 10)).log)
            async with world.boot(data_plane=True, hook=no_hook) as node:
                pass
            steps = Steps()
            async with world.boot(data_plane=True, hook=steps) as node:
                await node.remote_log.run_once()
                steps.stop_at(steps.count + number + 1)
                run = node.repairs.start(APPLY, "an admin")
                await asyncio.wait_for(steps.stopped.wait(), 1000)
                assert run.state is RepairState.RUNNING
            async with world.boot(data_plane=True) as node:
                await node.remote_log.start()
                await asyncio.sleep(LIMITS.upload_deadline_s + GONE_AFTER_S)
                run = await repaired(node)
                assert [each.outcome for each in run.segments] in ([], [Outcome.REPAIRED]), run
                assert await everything(node, orders) == whole(orders)
                assert (await repaired(node)).segments == []
                await assert_tidy(node)

        try:
            run_virtually(main)
        except BaseException as error:
            error.add_note(f"killed {name}")
            raise
