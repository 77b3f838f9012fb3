"""Clients of other kinds read from a broker what only its tier has, from offset 0 to the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, site, topic_config
from tests.e2e.writer import Writer
from tests.real.kafka import KafkaBroker, run_tool
from tests.real.kafka_clients import consume_all
from tests.real.kcat import run_kcat

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]

POLL_S = 60


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
def test_kcat_a_group_and_the_console_consumer_read_what_only_the_tier_has(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=topic_config(version))
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 5, "copies")
        writer.write_filler()
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) <= 2, "local retention")
        read = consume_all(broker.bootstrap, TOPIC, 0, isolation="read_committed")
        offsets = [record.offset for record in read]
        assert offsets[0] == 0 < int(broker.segment_files(TOPIC, 0)[0].stem)
        assert by_kcat(broker) == offsets
        assert by_a_group(broker, len(offsets)) == offsets
        assert by_the_console_consumer(broker, len(offsets)) == offsets


def by_kcat(broker: KafkaBroker) -> list[int]:
    read = run_kcat("-b", broker.bootstrap, "-C", "-t", TOPIC, "-o", "0", "-e", "-q", "-f", "%o\n")
    assert read.returncode == 0, read.stderr
    return [int(line) for line in read.stdout.splitlines()]


def by_a_group(broker: KafkaBroker, count: int) -> list[int]:
    """A group without offsets, which commits what it read."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    found: list[int] = []
    try:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            message = consumer.poll(POLL_S)
            assert message is not None, f"{len(found)} of {count} came"
            assert message.error() is None, message.error()
            found.append(message.offset() or 0)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def by_the_console_consumer(broker: KafkaBroker, count: int) -> list[int]:
    formatting = "--property" if broker.version.startswith("3.") else "--formatter-property"
    out = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", str(POLL_S * 1000)),
        *("--isolation-level", "read_committed"),
        *(formatting, "print.value=false", formatting, "print.offset=true"),
        version=broker.version,
    )
    return [int(line.removeprefix("Offset:")) for line in out.split() if line.startswith("Offset:")]
