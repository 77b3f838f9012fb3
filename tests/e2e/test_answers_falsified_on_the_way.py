"""What a broker with the plug-in makes of answers that something on the way to its node falsified:
[LOSS-2] its log start stays, and nothing of the tier is deleted; [LOSS-4] no consumer is reset;
[LOSS-5] [LOSS-7] none reads an aborted record; [LOSS-6] none passes over a record.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.e2e.lying_proxy import Lie, LyingProxy
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, below, broker_settings, site, tasks_of, topic_config
from tests.e2e.writer import Writer
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import consume_all, log_bounds

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(500)]

READING_S = 4.0
"""Several fetches of a consumer."""
RUNS = 3
"""Of the broker's tasks, which ask again."""
LIES_OF_INDEXES = (Lie.NOT_FOUND, Lie.PAGE, Lie.CUT)
"""A broker can't tell that an index is short but by what was promised of it."""


def read_from_the_start(bootstrap: str) -> list[tuple[int | None, bytes | None]]:
    """Offsets and values that a read_committed consumer gets within READING_S. It fails where it
    would be reset.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "falsified",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 20_000,
            "log_level": 0,
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        end = time.monotonic() + READING_S
        while time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value()))
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
def test_no_false_answer_deletes_resets_or_shows_what_is_not_there(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version) as (broker, node), LyingProxy(node.url) as proxy:
        broker.restart(overrides=broker_settings(proxy.url))
        broker.create_topic(TOPIC, config=topic_config(version))
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 8, "copies")
        writer.write_filler()
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) == 1, "all copies to end")
        rows = tier.segments()
        truth = [(each.offset, each.value) for each in tier.records("read_committed")]
        tasks = tasks_of(broker)

        def assert_nothing_is_gone() -> None:
            assert log_bounds(broker.bootstrap, TOPIC, 0)[0] == 0, proxy.lies
            assert tier.segments() == rows, proxy.lies

        def tell_tasks(call: str, lie: Lie) -> None:
            proxy.lies = {call: lie}
            enough = proxy.told[call] + RUNS
            broker.wait_until(lambda: proxy.told[call] >= enough, f"lies about {call}")
            assert_nothing_is_gone()

        def read_through(call: str, lie: Lie) -> list[tuple[int | None, bytes | None]]:
            proxy.lies = {call: lie}
            before = proxy.told[call]
            found = read_from_the_start(broker.bootstrap)
            assert proxy.told[call] > before, proxy.lies
            assert_nothing_is_gone()
            assert found == truth[: len(found)], proxy.lies
            return found

        for lie in Lie:
            proxy.lies = {"list": lie}
            broker.restart()  # as a new leader it looks for its log start, then for what is copied
            tell_tasks("list", lie)
            tell_tasks("highest", lie)
        for lie in Lie:
            assert read_through("lookup", lie) == []
        for lie in LIES_OF_INDEXES:
            assert read_through("index", lie) == []
        for lie in Lie:
            read_through("fetch", lie)
        proxy.lies = {}
        committed = consume_all(broker.bootstrap, TOPIC, 0, isolation="read_committed")
        assert [(each.offset, each.value) for each in below(committed, tier)] == truth
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        assert len(everything) > len(committed)
        with Writer(broker.bootstrap, TOPIC, 1):
            more = tier.status()["remote_segments"] + 2
            broker.wait_until(lambda: tier.status()["remote_segments"] >= more, "copies")
        assert tasks <= tasks_of(broker)
