"""A repair, killed at each of its steps: later lives of the node finish it and lose nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.repair.repair_run import Outcome, RepairState
from tests.rlm.held_segments import four_segments
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS, Node, Steps, World, new_world, no_hook
from tests.rlm.repairing import (
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
from tests.rlm.replicas import cluster
from tests.rlm.virtual_time import run_virtually


def damaged_world(path: Path, *, elsewhere: bool) -> tuple[World, KafkaLog, bytes]:
    """What a reader has to get in the end, too. `elsewhere`: only another replica has the segment
    at 10 once it is damaged.
    """
    path.mkdir(parents=True)
    orders = four_segments(path)
    world = new_world(path, (orders.log_dir,))
    if elsewhere:
        world.replicas = cluster(orders, b2=range(35))
    return world, orders, whole(orders)


async def damage(world: World, node: Node, orders: KafkaLog) -> None:
    await world.store.damage(keys_of(row_at(node, orders, 10)).log)
    if world.replicas is not None:
        orders.damage(10)


def names_of_steps(path: Path, *, elsewhere: bool) -> list[str]:
    """All steps of a repair that goes well."""
    steps = Steps()

    async def main() -> None:
        world, orders, _ = damaged_world(path, elsewhere=elsewhere)
        async with world.boot(hook=steps, data_plane=True) as node:
            await node.remote_log.run_once()
            await damage(world, node, orders)
            del steps.names[:]
            told = await only(node)
            assert (told.source == "the replica on broker 2") is elsewhere

    run_virtually(main)
    return steps.names


@pytest.mark.parametrize("elsewhere", [False, True], ids=["near", "elsewhere"])
def test_a_repair_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, elsewhere: bool
) -> None:
    names = names_of_steps(tmp_path / "all", elsewhere=elsewhere)
    assert "before COPY_SEGMENT_FINISHED" in names
    assert names.index("before get .log") < names.index("before COPY_SEGMENT_STARTED")
    for number, name in enumerate(names):

        async def main(number: int = number) -> None:
            path = tmp_path / str(number)
            world, orders, wanted = damaged_world(path, elsewhere=elsewhere)
            async with world.boot(data_plane=True) as node:
                await node.remote_log.run_once()
                await damage(world, node, orders)
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
                assert await everything(node, orders) == wanted
                assert (await repaired(node)).segments == []
                await assert_tidy(node)

        try:
            run_virtually(main)
        except BaseException as error:
            error.add_note(f"killed {name}")
            raise


def test_what_a_killed_repair_had_gathered_goes_when_the_node_starts(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A whole segment, on a disk that may have little room; the next repair may be months away."""
    left = tmp_path / "repair" / "segment" / "copy" / "log"

    async def main() -> None:
        left.parent.mkdir(parents=True)
        left.write_bytes(b"gathered")
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(1)
            assert not left.exists()

    run_virtually(main)


def test_a_repair_that_is_asked_for_at_once_keeps_what_it_gathers(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The sweep of the start never takes what a run of this process has put there."""
    gathered = tmp_path / "repair" / "segment"

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            node.repairs.start(APPLY, "an admin")
            await asyncio.sleep(1)
            gathered.mkdir(parents=True)
            await node.remote_log.start()
            await asyncio.sleep(1)
            assert gathered.exists()

    run_virtually(main)


def test_a_start_says_what_of_a_killed_repair_it_cannot_remove(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        (tmp_path / "repair").write_bytes(b"no directory")
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(1)
            assert str(tmp_path / "repair") in caplog.text

    run_virtually(main)
