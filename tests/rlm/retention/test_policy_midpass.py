"""What an admin sets while a pass of retention is under way: from the acknowledged offset on
nothing is marked by what stood before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import OutcomeUnknown
from rlm.leadership.leadership import BrokerWord, Leads, TopicConfig
from rlm.node_files.kill_switches import Switch
from rlm.retention.expirer import PARTITIONS_PARALLEL_MAX
from rlm.retention.topic_retention import ASK_AGAIN_S, SETTLE_S, ByTopicConfig
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import LogStart, TopicPolicyChange
from rlmm.segment import RemoteLogSegmentMetadataUpdate, SegmentState
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.virtual_time import run_virtually, virtual_ambient

PARTITIONS = 12
EVERYTHING = replace(LIMITS, retention_max_percent=100.0)
EXPIRED = TopicPolicy(retention_ms=1_000)


def some_logs(path: Path) -> list[KafkaLog]:
    log_dir = new_log_dir(path / "kafka")
    logs = [KafkaLog.create(log_dir, "orders", n, entries=((0, 0),)) for n in range(PARTITIONS)]
    for log in logs:
        log.write(0, 10, 20, 30, end=35)
    return logs


def marked_after(node: Node, offset: int) -> list[int]:
    """The accepted records, by their offsets, that took something away behind `offset` by a policy
    from before.
    """
    return [
        at
        for at, record in node.accepted
        if isinstance(record, LogStart | RemoteLogSegmentMetadataUpdate)
        and record.policy_offset is not None
        and record.policy_offset < offset < at
    ]


async def replace_policy(node: Node, policy: TopicPolicy) -> int:
    before = node.metadata.topic_policy("orders")
    return await node.metadata.set_topic_policy(TopicPolicyChange("orders", policy, before.offset))


@pytest.mark.parametrize(
    "policy", [TopicPolicy(), replace(EXPIRED, delete_paused=True)], ids=["raised", "paused"]
)
@pytest.mark.parametrize(
    "step",
    [
        "before record_log_start",
        "after record_log_start",
        "before DELETE_SEGMENT_STARTED",
        "after DELETE_SEGMENT_STARTED",
    ],
)
def test_nothing_is_marked_behind_the_policy_that_was_set_during_a_pass(
    tmp_path: Path, policy: TopicPolicy, step: str
) -> None:
    logs, offsets = some_logs(tmp_path), list[int]()

    async def main() -> None:
        passing = False

        async def hook(name: str) -> None:
            if passing and name == step and not offsets:
                offsets.append(-1)
                offsets[0] = await replace_policy(node, policy)

        world = new_world(tmp_path, (logs[0].log_dir,))
        async with world.boot(hook=hook, limits=EVERYTHING) as node:
            await node.remote_log.run_once()
            await replace_policy(node, EXPIRED)
            passing = True
            for _ in range(3):
                await node.parts.expirer.run_pass()
                await asyncio.sleep(LIMITS.delete_delay_s + 1)
            assert offsets[0] >= 0
            assert marked_after(node, offsets[0]) == []
            assert any(len(node.finished(log.partition)) == 3 for log in logs)
            errors = [node.remote_log.status(log.partition).last_error for log in logs]
            trouble = [each.text for each in errors if each is not None]
            assert not any("retention" in text for text in trouble), "it is decided anew"

    run_virtually(main)


def test_a_retention_raised_in_kafka_during_a_pass_ends_it(tmp_path: Path) -> None:
    logs = some_logs(tmp_path)
    words: dict[tuple[str, int], BrokerWord] = {
        ("orders", number): Leads(0, 35) for number in range(PARTITIONS)
    }
    broker = FakeBroker(words, TopicConfig("delete", 0, -1, False))

    async def main() -> None:
        async def hook(name: str) -> None:
            if name == "after record_log_start" and passing:
                broker.config = TopicConfig("delete", -1, -1, False)
                await asyncio.sleep(ASK_AGAIN_S)

        passing = False
        world = new_world(tmp_path, (logs[0].log_dir,))
        async with world.boot(hook=hook, limits=EVERYTHING, broker=broker) as node:
            await node.remote_log.run_once()
            ambient = virtual_ambient()
            expirer = node.parts.expirer
            expirer.rules = ByTopicConfig(node.metadata.topic_policy, broker, ambient.monotonic)
            await expirer.run_pass()
            await asyncio.sleep(SETTLE_S + 1)
            passing = True
            await expirer.run_pass()
            await asyncio.sleep(SETTLE_S + 1)
            await expirer.run_pass()
            kept = [log for log in logs if len(node.finished(log.partition)) == 3]
            assert len(kept) >= PARTITIONS - PARTITIONS_PARALLEL_MAX, "those beside it go on"

    run_virtually(main)


def test_a_mark_is_not_proposed_again_once_deleting_is_paused(tmp_path: Path) -> None:
    logs = some_logs(tmp_path)

    async def main() -> None:
        async def hook(name: str) -> None:
            if name == "before DELETE_SEGMENT_STARTED":
                await node.parts.given.switches.pause(Switch.DELETING, by="an admin")
                raise OutcomeUnknown("no answer")

        world = new_world(tmp_path, (logs[0].log_dir,))
        async with world.boot(hook=hook, limits=EVERYTHING) as node:
            await node.remote_log.run_once()
            await replace_policy(node, EXPIRED)
            await node.parts.expirer.run_pass()
            assert sum(len(node.finished(log.partition)) for log in logs) == 3 * PARTITIONS
            asked = [
                record.segment_id
                for record in node.proposed
                if isinstance(record, RemoteLogSegmentMetadataUpdate)
                and record.state is SegmentState.DELETE_SEGMENT_STARTED
            ]
            assert len(asked) == len(set(asked))

    run_virtually(main)


def test_objects_stay_where_deleting_is_paused_while_their_uploads_are_looked_for(
    tmp_path: Path,
) -> None:
    """The steps before the delete take time, and the switch may be thrown in between."""
    logs = some_logs(tmp_path)

    async def at_the_look(name: str, then: Callable[[], Awaitable[None]]) -> None:
        if name == "before list uploads of .log":
            await then()

    async def main() -> None:
        async def pause() -> None:
            await node.parts.given.switches.pause(Switch.DELETING, by="an admin")

        world = new_world(tmp_path, (logs[0].log_dir,))
        async with world.boot(
            hook=lambda name: at_the_look(name, pause), limits=EVERYTHING
        ) as node:
            await node.remote_log.run_once()
            before = await node.keys()
            await replace_policy(node, EXPIRED)
            await node.parts.expirer.run_pass()
            await asyncio.sleep(LIMITS.delete_delay_s + 5)
            assert node.parts.given.switches.pause_of(Switch.DELETING) is not None
            assert await node.keys() == before

    run_virtually(main)
