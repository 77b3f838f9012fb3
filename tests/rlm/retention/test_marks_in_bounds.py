"""No more is marked than the clean-ups take: every look at a partition reads all marked rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from rlm.delete import clean_up_tasks
from rlm.retention import topic_deletion
from rlmm.segment import SegmentState
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.retention.test_topic_deletion import HOUR_MS, mark
from tests.rlm.test_service_retention import EVERYTHING_IS_OLD, decide, expire
from tests.rlm.virtual_time import run_virtually

AT_ONCE = 3


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaLog:
    monkeypatch.setattr(clean_up_tasks, "PENDING_MAX", AT_ONCE)
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(*range(0, 80, 10), end=85)
    return log


def states(node: Node, log: KafkaLog) -> Counter[str]:
    return Counter(row[2] for row in node.rows(log.partition))


def marked(node: Node, log: KafkaLog) -> int:
    return states(node, log)[SegmentState.DELETE_SEGMENT_STARTED.name]


def test_retention_marks_what_can_be_removed_and_goes_on_in_the_next_pass(
    tmp_path: Path, log: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            await node.parts.expirer.run_pass()
            assert marked(node, log) == AT_ONCE
            for _ in range(3):
                await expire(node)
            assert node.rows(log.partition) == []
            await node.assert_quiesced()

    run_virtually(main)


def test_the_deletion_of_a_topic_marks_what_can_be_removed_and_goes_on(
    tmp_path: Path, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_deletion, "MARKS_PARALLEL_MAX", 1)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            await mark(node, log.partition, HOUR_MS)
            await asyncio.sleep(HOUR_MS / 1000)
            most = 0
            for _ in range(600):
                most = max(most, marked(node, log))
                await asyncio.sleep(1)
            assert most == AT_ONCE
            assert node.metadata.partition_state(log.partition) is None
            await node.assert_quiesced()

    run_virtually(main)
