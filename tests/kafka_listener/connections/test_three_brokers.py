"""A group of two consumers through one replica of three brokers, and a leader that moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.kafka_clients import NewRecord, produce
from tests.real.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "orders"
PARTITIONS = 6
RECORDS = 300
ON_BROKERS_FROM = 200
MOVED_AFTER = 400
DEADLINE_S = 90
IN_ORDER: dict[str, str | int] = {"batch.size": "2000", "enable.idempotence": "true"}
"""Otherwise batches that a broker does not take at once come behind the others."""
ALL = {(partition, number) for partition in range(PARTITIONS) for number in range(RECORDS)}


def value(partition: int, offset: int) -> bytes:
    return b"%d-%d-" % (partition, offset) + b"x" * 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("brokers")) as started:
        yield started


@pytest.fixture(scope="module")
def replica(cluster: KafkaCluster) -> Iterator[Listening]:
    """It knows one of the brokers, and finds the others."""
    tier = TierInMemory()
    cluster.create_topic(TOPIC, partitions=PARTITIONS, config={"internal.segment.bytes": "16384"})
    for number in range(PARTITIONS):
        records = [NewRecord(value(number, offset)) for offset in range(RECORDS)]
        produce(cluster.bootstrap, TOPIC, number, records, config=IN_ORDER)
        segments: list[Path] = cluster.leader_log(TOPIC, number)
        tier.take(TOPIC, number, segments[:-1])
        next(iter(cluster.running.values())).delete_records(TOPIC, number, ON_BROKERS_FROM)
    with Listening(cluster.bootstrap.split(",")[0], tier, brokers=max(cluster.running)) as started:
        yield started


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_consumers_read_everything_while_a_leader_moves(
    cluster: KafkaCluster, replica: Listening, protocol: str
) -> None:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": replica.address, "group.id": protocol, "group.protocol": protocol,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }  # fmt: skip
    both = (Consumer(settings), Consumer(settings))
    for each in both:
        each.subscribe([TOPIC])
    read: set[tuple[int, int]] = set()
    moved, until = False, time.monotonic() + DEADLINE_S
    while read != ALL and time.monotonic() < until:
        for each in both:
            message = each.poll(0.2)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            assert message.value() == value(partition, offset)
            read.add((partition, offset))
        if not moved and len(read) > MOVED_AFTER:
            present = cluster.leader(TOPIC, 0)
            cluster.move_leader(TOPIC, 0, next(each for each in (1, 2, 3) if each != present))
            moved = True
    assert len(read) == len(ALL)
    assert moved
    assert [len(each.assignment()) for each in both] == [PARTITIONS // 2] * 2
    for each in both:
        each.close()
