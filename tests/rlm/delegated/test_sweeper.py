"""Deletions that a broker began and nobody leads any more: ended by the nodes."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rlm.delegated.sweeper import Sweeper
from rlm.leadership.leadership import NoAnswer
from rlmm.partition_state import Mode
from rlmm.segment import (
    Incarnation,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import announcement, broker_of
from tests.rlm.delegated.plugin_client import files_of, of_disk, refused
from tests.rlm.delegated.test_copies import beside
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS
from tests.rlm.planner_facts import ME, segment_row, state
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED


def test_a_deleted_topics_segments_go_though_the_broker_removed_the_replica_and_stopped(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The broker's deletion of a topic is done once, after the replica's directory went."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker=broker) as (node, plugin):
            rows = [of_disk(orders, 1, 0, 9), of_disk(orders, 2, 10, 19)]
            for row in rows:
                await plugin.add(row)
                await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            shutil.rmtree(orders.directory)
            broker.words[("orders", 0)] = NoAnswer("unknown topic")
            broker.unknown_topics = True
            await asyncio.sleep(30)
            for row in rows:
                await plugin.update(row, DELETING)
            node.parts.clean_ups.hurry()
            await node.parts.clean_ups.close()  # what was begun is lost, as in a restart
            await asyncio.sleep(400)
            assert node.rows(orders.partition) == []
            await node.assert_quiesced()

    run_virtually(main)


def test_a_deleted_topics_segments_are_listed_though_its_replica_is_gone(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A broker renames the directories of a deleted topic, then lists the segments of each of its
    partitions in turn to delete them: once, and never again where that fails.
    """

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            shutil.rmtree(orders.directory)
            broker.words[("orders", 0)] = NoAnswer("unknown topic")
            broker.unknown_topics = True
            await asyncio.sleep(30)
            _, rows, _ = await plugin.page(orders.partition)
            assert [each.segment_id for each in rows or ()] == [row.segment_id]

    run_virtually(main)


def test_they_are_listed_though_the_node_has_not_seen_yet_that_the_replica_went(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A broker does not know the topic any more, some moments before it renames the directories."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            broker.words[("orders", 0)] = NoAnswer("unknown topic")
            broker.unknown_topics = True
            await asyncio.sleep(30)
            assert (await refused(plugin.page(orders.partition))).kind == "retry_later"
            shutil.rmtree(orders.directory)
            _, rows, _ = await plugin.page(orders.partition)
            assert [each.segment_id for each in rows or ()] == [row.segment_id]

    run_virtually(main)


def test_a_partition_is_deleted_by_its_three_steps_with_segments_and_all(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Kafka's own test of a metadata manager puts the three states one after the other."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            marked, started, finished = (
                plugin_bodies.delete_partition(
                    RemotePartitionDeleteMetadata(orders.partition, 1, 5, state)
                )
                for state in PartitionDeleteState
            )
            told = await refused(plugin.call("delete-partition", finished))
            assert told.kind == "conflict"
            await plugin.call("delete-partition", marked)
            await plugin.call("delete-partition", started)
            told = await refused(plugin.call("delete-partition", finished))
            assert told.kind == "retry_later"
            await asyncio.sleep(200)
            await plugin.call("delete-partition", finished)
            told = await refused(plugin.page(orders.partition))
            assert (told.kind, told.reason) == ("not_found", "GONE")
            await node.assert_quiesced()

    run_virtually(main)


def test_what_is_refused_of_a_plugin_is_a_problem_of_the_node_while_it_lasts(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            said = plugin_bodies.announce(replace(announcement(), broker_id=7))
            assert (await refused(plugin.call("announce", said))).reason == "BROKER_ID"
            (problem,) = node.parts.plugin.problems()
            assert (problem.area.value, problem.name) == ("plugin", "broker_id")
            await asyncio.sleep(90)
            (problem,) = node.parts.plugin.problems()
            assert problem.name == "silent"

    run_virtually(main)


@dataclass
class Removals:
    """Stands for the removals under way."""

    is_full: bool = False
    begun: list[RemoteLogSegmentMetadata] = field(default_factory=list)

    async def begin(self, row: RemoteLogSegmentMetadata, _token: int, _why: str) -> bool:
        self.begun.append(row)
        return True


def test_a_row_waits_on_while_the_removals_are_full() -> None:
    """Of a claimant that is gone each node ends rows that it has seen for long enough."""
    row = segment_row(1, 0, 9, segment_state=DELETING)
    now_s, removals = [0.0], Removals()
    found = state(mode=Mode.DELEGATED)
    metadata = SimpleNamespace(
        totals=lambda: SimpleNamespace(delete_started=1),
        migration=lambda: SimpleNamespace(is_held=False),
        partitions=lambda: [row.segment_id.partition],
        partition_state=lambda _: found,
        left_overs=lambda _: (row,),
    )
    around = SimpleNamespace(
        ambient=SimpleNamespace(monotonic=lambda: now_s[0]),
        identity=SimpleNamespace(incarnation=Incarnation(9, ME.directory_id, 1)),
        limits=LIMITS,
    )
    sweeper = Sweeper(
        cast("Any", metadata), cast("Any", removals), cast("Any", around), lambda _: None
    )
    for removals.is_full in (False, True, True, False):
        asyncio.run(sweeper.run_pass())
        now_s[0] += 60.0
    assert removals.begun == [row]
