"""The copy protocol, stopped at every one of its steps: killed, or interrupted and closed. The next
life of the node brings bucket and metadata together again, and loses nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from rlm.events import SegmentDeleted
from rlm.object_keys import segment_keys
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Hook, Node, Steps, World, new_world
from tests.rlm.virtual_time import run_virtually

MEMORY_DISK = Path("/dev/shm")
RUNS_MAX = 3
SCENARIOS = ("all goes well", "the first upload fails")


@pytest.fixture
def many_worlds(tmp_path: Path) -> Iterator[Path]:
    """A place for hundreds of short-lived nodes: in memory where there is such a thing, since
    their thousands of fsyncs would prove nothing here.
    """
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY_DISK) as path:
        yield Path(path)


def failing_first_upload(steps: Hook) -> Hook:
    """The store takes the `.log`, then fails once: everything of a clean-up follows."""
    failed = False

    async def hook(name: str) -> None:
        nonlocal failed
        await steps(name)
        if name == "before put .indexes" and not failed:
            failed = True
            raise RetryLater("the store is away")

    return hook


def scenario_hook(scenario: str, steps: Hook) -> Hook:
    return failing_first_upload(steps) if scenario == SCENARIOS[1] else steps


def new_partition(tmp_path: Path) -> KafkaLog:
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)
    return orders


def all_steps(tmp_path: Path, scenario: str) -> list[str]:
    """The names of all steps of a run that nobody stops."""
    orders = new_partition(tmp_path)
    steps = Steps()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=scenario_hook(scenario, steps)) as node:
            await node.remote_log.run_once()
            await node.assert_quiesced()

    run_virtually(main)
    return steps.names


async def check_all_is_there(node: Node, orders: KafkaLog) -> None:
    assert sorted(node.finished(orders.partition)) == [(0, 9), (10, 19)]
    for row in node.metadata.list_remote_log_segments(orders.partition):
        stored = [piece async for piece in node.remote_log.open_log(row.segment_id.id)]
        assert b"".join(stored) == orders.log_bytes(row.start_offset)


async def run_until_quiet(world: World, orders: KafkaLog) -> None:
    """Later lives run until there is nothing left to clean up; deadlines pass in between."""
    for _ in range(RUNS_MAX):
        async with world.boot() as node:
            report = await node.remote_log.run_once()
            await node.remote_log.close()
            if not report.pending_clean_ups:
                assert report.complete, report
                await node.assert_quiesced()
                await check_all_is_there(node, orders)
                return
            due_ms = max(each.due_ms for each in report.pending_clean_ups)
            assert due_ms > 0
            # As long as somebody's upload may still be alive, nothing is finished on suspicion.
            await asyncio.sleep(LIMITS.upload_deadline_s + LIMITS.upload_margin_s)
    raise AssertionError("never quiet")


async def stop_at(world: World, step: int | str, scenario: str, *, killed: bool) -> None:
    """One life that ends at a step, by number or name."""
    steps = Steps(step)
    async with world.boot(hook=scenario_hook(scenario, steps)) as node:
        run = asyncio.create_task(node.remote_log.run_once(), name="drive run_once")
        reached = asyncio.create_task(steps.stopped.wait())
        await asyncio.wait({run, reached}, return_when=asyncio.FIRST_COMPLETED)
        assert reached.done(), f"the run ended before step {step}"
        if not killed:
            # Ctrl-C: the step itself is given up, later ones (of the clean-up) work again.
            steps.stopped.clear()
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run
            await node.remote_log.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "interrupted"])
def test_a_run_stopped_at_any_step_is_finished_by_the_next(
    many_worlds: Path, scenario: str, killed: bool
) -> None:
    (many_worlds / "steps").mkdir()
    names = all_steps(many_worlds / "steps", scenario)
    assert "before COPY_SEGMENT_FINISHED" in names
    for number in range(1, len(names) + 1):
        path = many_worlds / str(number)
        path.mkdir()
        orders = new_partition(path)

        async def main(path: Path = path, orders: KafkaLog = orders, number: int = number) -> None:
            world = new_world(path, (orders.log_dir,))
            await stop_at(world, number, scenario, killed=killed)
            await run_until_quiet(world, orders)

        run_virtually(main)
        shutil.rmtree(path)


def test_every_step_of_the_protocol_is_among_those_that_are_stopped_at(tmp_path: Path) -> None:
    assert set(all_steps(tmp_path, SCENARIOS[1])) >= {
        f"{when} {what}"
        for when in ("before", "after")
        for what in (
            "claim_partition",
            "record_log_start",
            "COPY_SEGMENT_STARTED",
            "upload",
            "COPY_SEGMENT_FINISHED",
            "DELETE_SEGMENT_STARTED",
            "delete objects",
            "DELETE_SEGMENT_FINISHED",
        )
    } | {"before complete .log", "before put .indexes", "before put .rsm-manifest"}


def test_a_killed_nodes_attempt_waits_for_its_deadline_before_it_goes_for_good(
    tmp_path: Path,
) -> None:
    orders = new_partition(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await stop_at(world, "before upload", SCENARIOS[0], killed=True)
        async with world.boot() as node:
            left = node.metadata.left_overs(orders.partition)
            assert len(left) == 1
            report = await node.remote_log.run_once()
            # The copies go on at once, under new ids; only the final delete waits.
            assert len(report.copied) == 2
            assert [each.segment_id for each in report.pending_clean_ups] == [left[0].segment_id]
            margin_ms = round(LIMITS.upload_margin_s * 1000)
            assert report.pending_clean_ups[0].due_ms == left[0].upload_deadline_ms + margin_ms
            assert not report.complete

    run_virtually(main)


def test_an_interrupted_node_cleans_up_its_own_attempt_before_it_ends(tmp_path: Path) -> None:
    orders = new_partition(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await stop_at(world, "before put .indexes", SCENARIOS[0], killed=False)
        async with world.boot() as node:
            await node.assert_quiesced()

    run_virtually(main)


def test_a_zombies_late_upload_is_removed_by_the_second_delete(tmp_path: Path) -> None:
    orders = new_partition(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await stop_at(world, "before put .indexes", SCENARIOS[0], killed=True)
        async with world.boot(limits=replace(LIMITS, once_clean_up_wait_s=3_600.0)) as node:
            (row,) = node.metadata.left_overs(orders.partition)
            run = asyncio.create_task(node.remote_log.run_once())
            await asyncio.sleep(LIMITS.upload_deadline_s / 2)  # the first delete is long over
            key = segment_keys(PREFIX, row.segment_id, row.start_offset).log
            await node.store.put(key, b"late", crc32c=crc32c(b"late"))
            report = await run
            deleted = [each for each in node.events if isinstance(each, SegmentDeleted)]
            assert report.complete
            assert [each.segment_id for each in deleted] == [row.segment_id]
            await node.assert_quiesced()

    run_virtually(main)
