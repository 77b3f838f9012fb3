"""A topic's data in the tier goes: after its grace, whole, whoever stops on the way; or stays."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import encode_partition_metadata
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import PartitionDeleteUndo, TopicPolicyChange
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import CLEANED_UP_AFTER_S, LIMITS, PREFIX, Node, Steps, World, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually

MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
HOUR_MS = 3_600_000
HOURS = replace(LIMITS, scan_interval_s=20.0)
"""Where hours pass and no second decides: a look takes a millisecond of the machine's time."""
GONE_AFTER_S = LIMITS.deletion_settle_s + LIMITS.delete_delay_s + 10 * LIMITS.scan_interval_s
"""From the end of the grace until the last row of a small partition is gone, by any node."""
ONLY_THE_MARKER = {f"{PREFIX}_strandline/cluster.json"}


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return a_log(tmp_path)


def a_log(path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


async def mark(node: Node, partition: TopicIdPartition, grace_ms: int) -> int:
    state = node.metadata.partition_state(partition)
    assert state is not None
    return await node.metadata.put_remote_partition_delete_metadata(
        RemotePartitionDeleteMetadata(
            partition, 1, 0, MARKED, replaces_offset=state.delete_offset, grace_ms=grace_ms
        )
    )


async def undo(node: Node, partition: TopicIdPartition) -> None:
    state = node.metadata.partition_state(partition)
    assert state is not None
    await node.metadata.undo_partition_delete(PartitionDeleteUndo(partition, state.delete_offset))


async def read(node: Node, partition: TopicIdPartition) -> bytes:
    rows = list(node.metadata.list_remote_log_segments(partition))
    pieces = [piece async for piece in node.parts.reads.open_log(rows[0].segment_id.id)]
    return b"".join(pieces)


def test_everything_goes_after_the_grace_and_nothing_before(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            held = await node.keys()
            assert len(held) == 7
            await mark(node, orders.partition, HOUR_MS)
            await asyncio.sleep(HOUR_MS / 1000 - 10)
            assert await node.keys() == held
            assert await read(node, orders.partition) == orders.log_bytes(0)
            await asyncio.sleep(10 + GONE_AFTER_S)
            assert await node.keys() == ONLY_THE_MARKER
            assert node.metadata.partition_state(orders.partition) is None
            await node.assert_quiesced()

    run_virtually(main)


def test_an_undo_within_the_grace_brings_reading_and_copying_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(limits=HOURS) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            marked = await mark(node, orders.partition, HOUR_MS)
            orders.write(20, 30, end=35)
            await asyncio.sleep(60)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            status = node.remote_log.status(orders.partition)
            assert status.why_not_copying is WhyNot.PARTITION_DELETED
            await undo(node, orders.partition)
            late = RemotePartitionDeleteMetadata(
                orders.partition, 1, 0, STARTED, replaces_offset=marked
            )
            with pytest.raises(Conflict):
                await node.metadata.put_remote_partition_delete_metadata(late)
            await asyncio.sleep(2 * HOUR_MS / 1000)
            with pytest.raises(Conflict):
                await node.metadata.put_remote_partition_delete_metadata(late)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert await read(node, orders.partition) == orders.log_bytes(0)
            await node.assert_quiesced()

    run_virtually(main)


class FromTheStart:
    """Counts the steps from DELETE_PARTITION_STARTED on and stops at one of them."""

    def __init__(self, stop_at: int = -1) -> None:
        self.steps = Steps(stop_at)
        self.begun = False

    async def __call__(self, name: str) -> None:
        self.begun = self.begun or name == f"before {STARTED.name}"
        if self.begun:
            await self.steps(name)


async def ends_at(path: Path, stop_at: int) -> list[str]:
    """One node deletes up to a step and is gone; another one goes on. The steps it came to."""
    orders, hook = a_log(path), FromTheStart(stop_at)
    world = new_world(path, (orders.log_dir,))
    async with world.boot() as node:
        await node.remote_log.run_once()
        await mark(node, orders.partition, 0)
    async with world.boot(hook=hook) as node:
        await node.remote_log.start()
        await asyncio.sleep(GONE_AFTER_S)
    await assert_gone_by_another(world, orders)
    return hook.steps.names


async def assert_gone_by_another(
    world: World, orders: KafkaLog, within_s: float = GONE_AFTER_S
) -> None:
    async with world.boot(node_id=2, directory_id=uuid(2)) as node:
        await node.remote_log.start()
        await asyncio.sleep(within_s)
        assert node.metadata.partition_state(orders.partition) is None
        assert await node.keys() == ONLY_THE_MARKER
        await node.assert_quiesced()


def test_another_node_goes_on_from_wherever_one_stopped(tmp_path: Path) -> None:
    def one(number: int) -> list[str]:
        path = tmp_path / str(number)
        path.mkdir()

        async def main() -> None:
            names.extend(await ends_at(path, number))

        names: list[str] = []
        run_virtually(main)
        shutil.rmtree(path)
        return names

    steps = one(-1)
    for when in ("before", "after"):
        for what in (
            "DELETE_PARTITION_STARTED", "DELETE_SEGMENT_STARTED", "delete objects",
            "DELETE_SEGMENT_FINISHED", "DELETE_PARTITION_FINISHED",
        ):  # fmt: skip
            assert f"{when} {what}" in steps
    for number, name in enumerate(steps, 1):
        assert name in one(number), f"the step {number} ({name}) was reached"


def test_a_copy_that_was_under_way_goes_as_well(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world, steps = new_world(tmp_path, (orders.log_dir,)), Steps("before put .indexes")
        async with world.boot(hook=steps) as node:
            await node.remote_log.start()
            await steps.stopped.wait()
            await mark(node, orders.partition, 0)
        assert world.store.metadata is None
        await assert_gone_by_another(world, orders, within_s=CLEANED_UP_AFTER_S + GONE_AFTER_S)

    run_virtually(main)


def test_a_pause_of_deleting_holds_it_back_and_its_end_lets_it_go(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            held = await node.keys()
            paused = await node.metadata.set_topic_policy(
                TopicPolicyChange("orders", TopicPolicy(delete_paused=True), replaces_offset=-1)
            )
            await mark(node, orders.partition, 0)
            await asyncio.sleep(GONE_AFTER_S)
            assert await node.keys() == held
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.delete_state is MARKED
            await undo(node, orders.partition)
            await mark(node, orders.partition, 0)
            await node.metadata.set_topic_policy(
                TopicPolicyChange("orders", TopicPolicy(), replaces_offset=paused)
            )
            await asyncio.sleep(GONE_AFTER_S)
            assert await node.keys() == ONLY_THE_MARKER

    run_virtually(main)


def test_a_store_that_fails_for_one_topic_keeps_no_other_from_going(
    tmp_path: Path, orders: KafkaLog
) -> None:
    bills = KafkaLog.create(orders.log_dir, "bills", entries=((0, 0),))
    bills.write(0, 10, end=15)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
            kept = {key for key in await node.keys() if "/orders-" in key}
            for log in (orders, bills):
                await mark(node, log.partition, 0)
        delete_many = world.store.delete_many

        async def failing(keys: list[str]) -> None:
            if any("/orders-" in key for key in keys):
                raise OSError("the disk of the store")
            await delete_many(keys)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.store, "delete_many", failing)
            async with world.boot() as node:
                await node.remote_log.start()
                await asyncio.sleep(GONE_AFTER_S)
                assert node.metadata.partition_state(bills.partition) is None
                assert await node.keys() == kept | ONLY_THE_MARKER
        await assert_gone_by_another(world, orders)

    run_virtually(main)


def test_a_topic_made_again_under_its_name_is_another_one(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=HOURS) as node:
            await node.remote_log.run_once()
            await mark(node, orders.partition, HOUR_MS)
        shutil.rmtree(orders.directory)
        again = KafkaLog(
            orders.log_dir, replace(orders.partition, topic_id=Uuid(b"made-again-orde1"))
        )
        again.directory.mkdir()
        metadata = encode_partition_metadata(again.partition.topic_id)
        (again.directory / "partition.metadata").write_bytes(metadata)
        again.set_epochs((0, 0))
        again.write(0, 10, end=15)
        async with world.boot(limits=HOURS) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert node.finished(again.partition) == [(0, 9)]
            await asyncio.sleep(2 * HOUR_MS / 1000)
            assert node.metadata.partition_state(orders.partition) is None
            assert node.finished(again.partition) == [(0, 9)]
            assert await read(node, again.partition) == again.log_bytes(0)
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize(("quiet_h", "grace_h"), [(3, 1), (30, 2)])
def test_a_mark_that_follows_a_quiet_time_has_its_whole_grace(
    tmp_path: Path, orders: KafkaLog, quiet_h: int, grace_h: int
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            await asyncio.sleep(quiet_h * 3_600)
            await node.remote_log.start()
            await mark(node, orders.partition, grace_h * HOUR_MS)
            await asyncio.sleep(grace_h * 3_600 - 1)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.delete_state is MARKED
            await asyncio.sleep(GONE_AFTER_S)
            assert await node.keys() == ONLY_THE_MARKER

    run_virtually(main)


def test_a_leaders_clock_that_was_a_year_ahead_neither_shortens_nor_freezes_a_grace(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(ahead_ms=365 * 24 * HOUR_MS) as node:
            late = RemotePartitionDeleteMetadata(orders.partition, 1, 0, STARTED)
            for _ in range(300):
                with suppress(Conflict):
                    await node.metadata.put_remote_partition_delete_metadata(late)
        async with world.boot() as node:
            await node.remote_log.run_once()
            await node.remote_log.start()
            await mark(node, orders.partition, HOUR_MS)
            await asyncio.sleep(3_599)
            assert len(await node.keys()) == 7
            await asyncio.sleep(GONE_AFTER_S)
            assert await node.keys() == ONLY_THE_MARKER

    run_virtually(main)


def test_a_grace_passes_although_no_process_lives_that_long(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
            await mark(node, orders.partition, 6 * HOUR_MS)
        for _ in range(5):
            async with world.boot(limits=HOURS) as node:
                await node.remote_log.start()
                await asyncio.sleep(3_600 * 1.1)
                assert len(await node.keys()) == 7, "six hours were not measured yet"
        for _ in range(3):
            async with world.boot(limits=HOURS) as node:
                await node.remote_log.start()
                await asyncio.sleep(3_600 * 1.1)
        assert await node.keys() == ONLY_THE_MARKER

    run_virtually(main)


def test_an_idle_cluster_comes_to_the_end_of_a_long_grace(tmp_path: Path, orders: KafkaLog) -> None:
    """Nothing is written for a day; the node measures by itself."""
    limits = replace(LIMITS, scan_interval_s=600.0)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(limits=limits) as node:
            await node.remote_log.run_once()
            await mark(node, orders.partition, 24 * HOUR_MS)
            await node.remote_log.start()
            await asyncio.sleep(24 * 3_600 - 1)
            assert len(await node.keys()) == 7
            await asyncio.sleep(6 * 3_600)
            assert await node.keys() == ONLY_THE_MARKER

    run_virtually(main)
