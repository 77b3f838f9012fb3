"""Kafka consumers through a node: a stock broker that keeps one segment, everything else tiered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_listener.virtual_nodes import port_of
from rsm_backends.store_config import StoreConfig
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.e2e.test_sidecar_beside_kafka import (
    TOPIC,
    TOPIC_CONFIG,
    Scene,
    assert_same,
    node_settings,
)
from tests.e2e.writer import Writer
from tests.real.kafka import KafkaBroker, run_tool
from tests.real.kafka_clients import ConsumedRecord, NewRecord, consume_all, produce
from tests.real.kcat import run_kcat
from tests.real.ports import ports_in_a_row

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PARTITIONS = 2
BROKER_ID = 1


@pytest.fixture(scope="module")
def read_port() -> int:
    return ports_in_a_row(2 + BROKER_ID)


def at_the_broker(read_port: int) -> str:
    """The replica's port for the broker. librdkafka's question for an offset fails with "required
    feature not supported" if it is the very first thing asked of a node, which is no bootstrap
    server: so it does at brokers behind another address, too.
    """
    return f"127.0.0.1:{port_of(read_port, BROKER_ID)}"


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, minio_store_config: StoreConfig, read_port: int
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("replica")
    store = replace(minio_store_config, prefix="e2e/replica/")
    with KafkaBroker(folder / "broker") as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS, config=TOPIC_CONFIG)
        settings = node_settings(folder, broker, store)
        settings["read"] = {"listen": f"127.0.0.1:{read_port}"}
        with NodeProcess(folder / "node", settings) as node:
            yield Scene(broker, node, store, PARTITIONS)


class Seen(NamedTuple):
    """All that consumers of the broker saw in a partition before it dropped the sealed segments."""

    uncommitted: list[ConsumedRecord]
    committed: list[ConsumedRecord]


@pytest.fixture(scope="module")
def seen(stage: Scene) -> list[Seen]:
    """Records of every codec, with transactions of both ends; then local retention takes them."""
    with Writer(stage.broker.bootstrap, TOPIC, PARTITIONS) as writer:
        stage.wait_for_copies(3)
    writer.write_filler()
    stage.wait_until_all_is_copied()
    broker = stage.broker.bootstrap
    found = [
        Seen(
            consume_all(broker, TOPIC, number),
            consume_all(broker, TOPIC, number, isolation="read_committed"),
        )
        for number in range(PARTITIONS)
    ]
    stage.drop_locally([stage.keep(number) for number in range(PARTITIONS)])
    return found


def test_a_consumer_reads_the_whole_history_from_0_to_the_end(
    seen: list[Seen], read_port: int
) -> None:
    address = at_the_broker(read_port)
    for number, before in enumerate(seen):
        assert before.uncommitted[0].offset == 0
        assert_same(consume_all(address, TOPIC, number), before.uncommitted)
        committed = consume_all(address, TOPIC, number, isolation="read_committed")
        assert_same(committed, before.committed)
        assert len(before.committed) < len(before.uncommitted)


def test_kcat_and_the_console_consumer_read_as_much(seen: list[Seen], read_port: int) -> None:
    address, expected = f"127.0.0.1:{read_port}", sum(len(each.committed) for each in seen)
    read = run_kcat("-b", address, "-C", "-t", TOPIC, "-o", "0", "-e", "-q", "-f", "%p %o\n")
    assert read.returncode == 0, read.stderr
    assert len(set(read.stdout.splitlines())) == expected
    out = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", address, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(expected), "--timeout-ms", "30000"),
        *("--isolation-level", "read_committed", "--group", "console"),
        *("--formatter-property", "print.value=false", "--formatter-property", "print.offset=true"),
        *("--formatter-property", "print.partition=true"),
    )
    assert f"Processed a total of {expected} messages" in out or len(out.splitlines()) >= expected


def test_the_bytes_came_from_the_tier_and_are_counted(
    stage: Scene, seen: list[Seen], read_port: int
) -> None:
    consume_all(at_the_broker(read_port), TOPIC, 0)
    text = PLAIN.get(f"{stage.node.url}/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if "strandline_read_" in line)
    assert float(figures['strandline_read_bytes_total{source="tier"}']) > sum(
        row["objects"]["log_bytes"] for row in stage.tier[0].segments()
    )
    assert float(figures['strandline_read_requests_total{api="FETCH"}']) > 0
    assert float(figures["strandline_read_lost_range_total"]) == 0


def test_who_reads_on_gets_the_topic_that_was_made_again_under_its_name(
    stage: Scene, seen: list[Seen], read_port: int
) -> None:
    """The tier still has the topic of before, from offset 0 on."""
    reading = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{read_port}", "group.id": "again", "log_level": 0,
            "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500,
        }
    )  # fmt: skip
    reading.assign([TopicPartition(TOPIC, 0, 0)])
    for _ in seen[0].committed:
        message = reading.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
    stage.broker.delete_topic(TOPIC)
    stage.broker.create_topic(TOPIC, partitions=PARTITIONS, config=TOPIC_CONFIG)
    new = [b"anew %d" % number for number in range(5)]
    produce(stage.broker.bootstrap, TOPIC, 0, [NewRecord(value) for value in new])
    found: list[bytes | None] = []
    while len(found) < len(new):
        message = reading.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
    reading.close()
    assert found == new
