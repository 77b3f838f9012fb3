"""A broker adds a segment, and waits with it for its turn among its other copies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlm.delegated.spool import SpoolLimits
from rlm.leadership.leadership import BrokerWord, Leads, LocalLogStart
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import Flow, FlowLimits, Rates
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, TIERED
from tests.rlm.delegated.plugin_client import PluginClient, client_of, files_of, of_disk
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.telling_broker import TellingBroker
from tests.rlm.virtual_time import run_virtually, virtual_ambient

COPIER_THREADS = 10
"""Kafka's `remote.log.manager.copier.thread.pool.size`, as it comes."""
EACH_S = 150.0
"""A copy takes half of its deadline."""


def logs_in(path: Path) -> list[KafkaLog]:
    log_dir, logs = new_log_dir(path), []
    for number in range(COPIER_THREADS):
        log = KafkaLog.create(log_dir, "orders", number, entries=((0, 0),))
        log.write(0, 10, end=15)
        logs.append(log)
    return logs


def leads() -> dict[tuple[str, int], BrokerWord]:
    return {("orders", number): Leads(0, 15) for number in range(COPIER_THREADS)}


async def slow(step: str) -> None:
    """A store that takes its time, and stays below the deadline for a copy without progress."""
    if step.startswith("before put ."):
        await asyncio.sleep(EACH_S / 3)


def row_of(log: KafkaLog) -> RemoteLogSegmentMetadata:
    return of_disk(log, 1 + log.partition.partition, 0, 9)


async def copied(node: Node, plugin: PluginClient, logs: list[KafkaLog], *, sent: bool) -> None:
    """All threads of a broker copy a segment each, at once."""
    await plugin.announce(*(log.partition for log in logs))
    await asyncio.sleep(5)

    async def one(log: KafkaLog) -> None:
        row = row_of(log)
        await plugin.add(row)
        files = files_of(log, row)
        custom = await (plugin.send(files) if sent else plugin.copy(files))
        await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, custom)

    async with asyncio.TaskGroup() as threads:
        for log in logs:
            threads.create_task(one(log))
    assert [node.finished(log.partition) for log in logs] == [[(0, 9)]] * len(logs)


def test_a_copy_has_its_whole_time_once_its_turn_has_come(tmp_path: Path) -> None:
    async def main() -> None:
        logs = logs_in(tmp_path / "kafka")
        world = new_world(tmp_path, (logs[0].log_dir,))
        async with world.boot(
            broker=FakeBroker(leads(), TIERED), topics=NO_TOPICS, data_plane=True, hook=slow
        ) as node:
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                await copied(node, plugin, logs, sent=False)
            await node.remote_log.close()

    run_virtually(main)


def test_a_segment_that_is_sent_has_its_whole_time_once_its_turn_has_come(tmp_path: Path) -> None:
    async def main() -> None:
        logs = logs_in(tmp_path / "kafka")
        broker = TellingBroker(
            leads(), TIERED, LocalLogStart(0, 0), {"orders": logs[0].partition.topic_id},
            epochs=(EpochEntry(0, 0),),
        )  # fmt: skip
        world = new_world(tmp_path, ())
        world.spool = SpoolLimits(Path(), free_bytes_min=0)
        async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True, hook=slow) as node:
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                await copied(node, plugin, logs, sent=True)
            await node.remote_log.close()

    run_virtually(main)


def test_the_deadline_of_a_copy_grows_with_a_limit_of_the_rate(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        rate, size = 4 * 2**20, 2**30
        broker = FakeBroker({("orders", 0): Leads(0, 25)}, TIERED)
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True) as node:
            flow = FlowControl(
                FlowLimits(Rates(rate)), part_bytes=2**20, workers=1, monotonic=lambda: 0.0
            )
            node.parts.driver.copier.slack_of = partial(flow.slack_s, Flow.COPY)
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                await plugin.announce(orders.partition)
                await asyncio.sleep(5)
                row = replace(of_disk(orders, 1, 0, 9), size_bytes=size)
                began_ms = virtual_ambient().now_ms()
                await plugin.add(row)
                added = node.metadata.segment(orders.partition, row.segment_id.id)
            await node.remote_log.close()
        assert added is not None
        # Copies at once share the rate, so each of them may be that much slower.
        least_s = LIMITS.upload_deadline_s + size * LIMITS.copies_parallel_max / rate
        assert added.upload_deadline_ms - began_ms >= least_s * 1000

    run_virtually(main)


def test_no_turn_is_kept_for_what_is_not_copied_here(tmp_path: Path, orders: KafkaLog) -> None:
    """A broker may copy by another storage manager than ours, or die behind its add."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        broker = FakeBroker({("orders", 0): Leads(0, 25)}, TIERED)
        async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True) as node:
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                await plugin.announce(orders.partition)
                await asyncio.sleep(5)
                for number in range(1, 10):
                    await plugin.add(of_disk(orders, number, 0, 9))
                    await asyncio.sleep(20)
                row = node.metadata.segment(orders.partition, uuid(9))
            await node.remote_log.close()
        assert row is not None
        assert row.upload_deadline_ms <= virtual_ambient().now_ms() + LIMITS.upload_deadline_s * 1e3

    run_virtually(main)
