"""Many partitions and files on the broker's disk: all are found, nobody waits for the look."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.idle_log_dir import TOPIC, write_log_dir
from bench.metadata_set import KAFKA_CLUSTER_ID
from rlm.control.why_not import WhyNot
from rlm.copy.scanner import Scanner
from rlm.leadership.leadership import Leads
from rlm.leadership.topic_filter import TopicFilter
from tests.rlm.one_node import new_world

PARTITIONS = 1_000


async def test_a_hundred_thousand_files_are_looked_at_beside_the_event_loop(
    tmp_path: Path,
) -> None:
    log_dir = tmp_path / "kafka-logs"
    write_log_dir(
        log_dir, cluster_id=KAFKA_CLUSTER_ID, node_id=1, partitions=PARTITIONS, segments=25
    )

    async def breathe() -> None:
        await asyncio.sleep(0)

    scanner = Scanner((log_dir,), KAFKA_CLUSTER_ID, None, TopicFilter(("*",), ()), breathe, 60.0)
    looking = asyncio.ensure_future(scanner.look())
    turns = 0
    while not looking.done():
        turns += 1
        await asyncio.wait({looking}, timeout=0.001)
    look = looking.result()
    assert look.problems == ()
    assert [(f.local.partition.topic, f.local.partition.partition) for f in look.found] == [
        (TOPIC, number) for number in range(PARTITIONS)
    ]
    for found in look.found:
        assert [each.base_offset for each in found.local.segments] == [
            number * 1_000 for number in range(25)
        ]
        assert found.word == Leads(0, 0)
    assert turns > 2, "the files were read on the event loop"


async def test_a_thousand_idle_partitions_are_claimed_once_and_propose_nothing_more(
    tmp_path: Path,
) -> None:
    log_dir = tmp_path / "kafka-logs"
    write_log_dir(log_dir, cluster_id=KAFKA_CLUSTER_ID, node_id=1, partitions=PARTITIONS)
    world = new_world(tmp_path, (log_dir,))
    async with world.boot() as node:
        await node.remote_log.run_once()
        statuses = node.remote_log.statuses()
        assert {status.why_not_copying for status in statuses} == {WhyNot.NO_SEALED_SEGMENT}
        assert node.metadata.totals().partitions == len(statuses) == PARTITIONS
        offset, objects = node.metadata.applied_offset, await node.keys()
        for _ in range(3):
            await node.remote_log.run_once()
        assert node.metadata.applied_offset == offset
        assert await node.keys() == objects
