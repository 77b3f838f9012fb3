"""Retention by the topics' own configs: what counts, what waits, what never shortens by a guess."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlm.leadership.leadership import Leads, NoAnswer, TopicConfig
from rlm.retention.expirer import no_trouble
from rlm.retention.topic_retention import (
    AGE_MAX_S,
    SETTLE_S,
    ByTopicConfig,
    KnownConfig,
    RetentionInForce,
    RetentionSource,
    retention_in_force,
)
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, new_world
from tests.rlm.virtual_time import run_virtually, virtual_ambient

WEEK = TopicConfig("delete", 604_800_000, -1, False)
NONE = TopicPolicy()
NOW_S = 10_000.0
SETTLED = KnownConfig(WEEK, NOW_S - SETTLE_S, NOW_S)


def in_force(
    known: KnownConfig | None, policy: TopicPolicy = NONE, trouble: str | None = None
) -> RetentionInForce:
    return retention_in_force("orders", ZERO_UUID, policy, known, trouble, NOW_S)


def test_the_configs_count_where_no_policy_sets_a_retention() -> None:
    found = in_force(SETTLED, replace(NONE, delete_paused=True, offset=7))
    assert (found.policy.retention_ms, found.policy.retention_bytes) == (604_800_000, -1)
    assert (found.policy.delete_paused, found.source) == (True, RetentionSource.TOPIC)
    assert found.held_back is None


def test_a_topic_without_any_cleanup_keeps_everything_whatever_its_limits() -> None:
    """As in Kafka. What DeleteRecords took goes: that is no limit, and nothing is held back."""
    config = replace(WEEK, cleanup_policy="", retention_bytes=5)
    assert in_force(replace(SETTLED, config=config)) == RetentionInForce(
        NONE, RetentionSource.TOPIC
    )


@pytest.mark.parametrize("policy", [TopicPolicy(retention_ms=5), TopicPolicy(retention_bytes=0)])
def test_a_policy_that_sets_any_retention_wins_as_a_whole(policy: TopicPolicy) -> None:
    assert in_force(SETTLED, policy) == RetentionInForce(policy)
    assert in_force(None, policy, "away") == RetentionInForce(policy)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (None, "not known: the broker is away"),
        (
            replace(SETTLED, config=replace(WEEK, cleanup_policy="compact")),
            "cleanup.policy=compact",
        ),
        (KnownConfig(WEEK, NOW_S - SETTLE_S + 1, NOW_S), "apply once they are unchanged"),
        (KnownConfig(WEEK, 0, NOW_S - AGE_MAX_S - 1), "old and may have changed: the broker is"),
    ],
)
def test_what_is_not_certain_holds_everything_back(known: KnownConfig | None, why: str) -> None:
    assert why in str(in_force(known, trouble="the broker is away").held_back)


async def test_the_last_answer_stands_while_the_broker_is_away_and_a_new_one_has_to_settle() -> (
    None
):
    now, broker = [0.0], FakeBroker(config=WEEK)
    rules = ByTopicConfig(lambda _, __: NONE, broker, lambda: now[0])
    await rules.refresh(["orders"])
    assert rules.in_force("orders", ZERO_UUID).held_back is not None
    now[0] += SETTLE_S
    await rules.refresh(["orders"])
    assert rules.in_force("orders", ZERO_UUID).held_back is None
    broker.config = NoAnswer("connection refused")
    now[0] += AGE_MAX_S
    await rules.refresh(["orders"])
    assert rules.in_force("orders", ZERO_UUID).policy.retention_ms == WEEK.retention_ms
    assert rules.in_force("orders", ZERO_UUID).held_back is None
    broker.config = replace(WEEK, retention_ms=1)
    await rules.refresh(["orders"])
    assert "apply once they are unchanged" in str(rules.in_force("orders", ZERO_UUID).held_back)
    await rules.refresh(["others"])
    assert "not asked" in str(rules.in_force("orders", ZERO_UUID).held_back)


def test_a_topic_made_again_expires_nothing_of_one_whose_directory_cannot_be_read(
    tmp_path: Path,
) -> None:
    """Its log directory fails, and the topic is made again in another one of the broker."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, WEEK)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            ambient, expirer = virtual_ambient(), node.parts.expirer
            expirer.rules = ByTopicConfig(node.metadata.topic_policy, broker, ambient.monotonic)
            metadata = log.log_dir / "orders-0" / "partition.metadata"
            readable = metadata.read_bytes()
            metadata.write_bytes(b"\0")
            await node.remote_log.run_once()
            broker.config = replace(WEEK, retention_ms=0)
            for _ in range(3):
                await expirer.run_pass()
                await ambient.sleep(SETTLE_S + 1)
            assert len(node.finished(log.partition)) == 3
            metadata.write_bytes(readable)
            await node.remote_log.run_once()
            expirer.look_trouble = lambda: "a look at them takes long"
            await expirer.run_pass()
            assert len(node.finished(log.partition)) == 3
            expirer.look_trouble = no_trouble
            await expirer.run_pass()
            assert node.finished(log.partition) == []

    run_virtually(main)


@pytest.mark.parametrize("said", [Uuid(b"another topic id"), NoAnswer("it does not tell")])
def test_a_topic_made_again_expires_nothing_of_one_whose_directory_stays(
    tmp_path: Path, said: Uuid | NoAnswer
) -> None:
    """A full disk: the broker takes the log directory offline, and its files stay readable. The
    topic is deleted and made again, with fewer partitions and a short retention.
    """
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    is_it = {"orders": log.partition.topic_id}
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, WEEK, ids=dict(is_it))

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            ambient, expirer = virtual_ambient(), node.parts.expirer
            expirer.rules = ByTopicConfig(node.metadata.topic_policy, broker, ambient.monotonic)
            broker.words[("orders", 0)] = NoAnswer("unknown_topic_or_partition")
            broker.ids["orders"], broker.config = said, replace(WEEK, retention_ms=0)
            for _ in range(3):
                await node.remote_log.run_once()
                await expirer.run_pass()
                await ambient.sleep(SETTLE_S + 1)
            assert len(node.finished(log.partition)) == 3
            by = expirer.rules.in_force("orders", log.partition.topic_id)
            assert by.held_back is not None
            assert by.policy.retention_ms == -1
            broker.ids = dict(is_it)
            for _ in range(2):
                await expirer.run_pass()
                await ambient.sleep(SETTLE_S + 1)
            await expirer.run_pass()
            assert node.finished(log.partition) == []

    run_virtually(main)


def test_a_topic_made_again_with_the_same_configs_has_to_settle_too() -> None:
    """Configs and id are two answers: between them the topic may have been made again."""
    now, broker = [0.0], FakeBroker(config=WEEK, ids={"orders": ZERO_UUID})
    rules, new = (
        ByTopicConfig(lambda _, __: NONE, broker, lambda: now[0]),
        Uuid(b"another topic id"),
    )

    async def main() -> None:
        await rules.refresh(["orders"])
        now[0] += SETTLE_S
        await rules.refresh(["orders"])
        assert rules.in_force("orders", ZERO_UUID).held_back is None
        assert "another topic" in str(rules.in_force("orders", new).held_back)
        broker.ids["orders"] = new
        await rules.refresh(["orders"])
        assert "apply once they are unchanged" in str(rules.in_force("orders", new).held_back)
        assert "another topic" in str(rules.in_force("orders", ZERO_UUID).held_back)

    run_virtually(main)


def test_a_node_expires_by_the_configs_and_says_so(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, replace(WEEK, retention_ms=0))

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            await expirer.run_pass()
            assert len(node.finished(log.partition)) == 3, "by the policies nothing goes"
            ambient = virtual_ambient()
            expirer.rules = ByTopicConfig(node.metadata.topic_policy, broker, ambient.monotonic)
            plan = await expirer.plan(log.partition)
            assert plan.whose == "the topic's Kafka configs"
            assert "apply once they are unchanged" in str(plan.held_back)
            await expirer.run_pass()
            keep = TopicPolicyChange("orders", TopicPolicy(retention_ms=10**15), -1)
            offset = await node.metadata.set_topic_policy(keep)
            await ambient.sleep(SETTLE_S + 1)
            await expirer.run_pass()
            assert len(node.finished(log.partition)) == 3, "the policy wins"
            await node.metadata.set_topic_policy(TopicPolicyChange("orders", NONE, offset))
            await expirer.run_pass()
            await ambient.sleep(LIMITS.delete_delay_s + 1)
            assert node.rows(log.partition) == []
            await node.assert_quiesced()

    run_virtually(main)
