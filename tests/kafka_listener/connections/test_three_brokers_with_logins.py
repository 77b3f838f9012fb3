"""Java's and librdkafka's consumers that log in at three brokers through one replica."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin._acl import AclOperation

from kafka_listener.access.login import MECHANISMS
from kafka_listener.connections.brokers import BrokerSecurity
from kafka_listener.connections.listener import ReadAccess
from tests.kafka_listener.connections.guarded_broker import NODE, allow, guard, java_login, login
from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.test_logins_with_brokers import served_by
from tests.kafka_listener.connections.test_three_brokers import IN_ORDER, value
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.certificates import Certificate, make_certificate
from tests.real.console_consumer import ConsoleConsumer
from tests.real.kafka_clients import NewRecord, produce
from tests.real.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(600)]

TOPIC = "orders"
PARTITIONS = 6
RECORDS, MORE = 300, 50
ON_BROKERS_FROM = 200
DEADLINE_S = 120


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, certificate: Certificate
) -> Iterator[KafkaCluster]:
    """reader may read orders."""
    home = tmp_path_factory.mktemp("brokers")
    with KafkaCluster(home, **guard(certificate)._asdict()) as started:
        started.create_topic(
            TOPIC, partitions=PARTITIONS, config={"internal.segment.bytes": "16384"}
        )
        allow(started, "reader", TOPIC, AclOperation.READ)
        yield started


@pytest.fixture(scope="module")
def replica(cluster: KafkaCluster, certificate: Certificate) -> Iterator[Listening]:
    """It knows one of the brokers, and finds the others."""
    tier = TierInMemory()
    write(cluster, 0, RECORDS)
    for number in range(PARTITIONS):
        tier.take(TOPIC, number, cluster.leader_log(TOPIC, number)[:-1])
        cluster.brokers[1].delete_records(TOPIC, number, ON_BROKERS_FROM)
    access = ReadAccess(mechanisms=MECHANISMS, tls=served_by(certificate, asks_for_one=False))
    with Listening(
        cluster.brokers[1].address("SASL"),
        tier,
        brokers=max(cluster.running),
        access=access,
        security=BrokerSecurity(sasl=NODE),
    ) as started:
        yield started


def write(cluster: KafkaCluster, first: int, end: int) -> None:
    for number in range(PARTITIONS):
        records = [NewRecord(value(number, offset)) for offset in range(first, end)]
        produce(cluster.bootstrap, TOPIC, number, records, config=IN_ORDER)


def places(end: int) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(end)}


def move_leader(cluster: KafkaCluster) -> None:
    present = cluster.leader(TOPIC, 0)
    cluster.move_leader(TOPIC, 0, next(each for each in cluster.running if each != present))


def wait_for(console: ConsoleConsumer, end: int) -> None:
    """Until it has read each partition up to `end`, exclusive."""
    until = time.monotonic() + DEADLINE_S
    while (found := {(each.partition, each.offset) for each in console.records()}) != places(end):
        assert time.monotonic() < until, f"{len(places(end) - found)} are missing: {console.said}"
        assert found <= places(end)
        time.sleep(0.2)


def test_two_of_librdkafkas_share_a_group_while_a_leader_moves(
    cluster: KafkaCluster, replica: Listening, certificate: Certificate
) -> None:
    settings = {
        "bootstrap.servers": replica.address, "group.id": "both", "group.protocol": "consumer",
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
        **login("SCRAM-SHA-512", "reader"),
        "security.protocol": "SASL_SSL", "ssl.ca.location": str(certificate.certificate),
    }  # fmt: skip
    both = Consumer(settings), Consumer(settings)
    for each in both:
        each.subscribe([TOPIC])
    read: set[tuple[int, int]] = set()
    moved, until = False, time.monotonic() + DEADLINE_S
    while read != places(RECORDS) and time.monotonic() < until:
        for each in both:
            message = each.poll(0.2)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            assert message.value() == value(partition, offset)
            read.add((partition, offset))
        if not moved and len(read) > RECORDS:
            move_leader(cluster)
            moved = True
    for each in both:
        each.close()
    assert read == places(RECORDS)
    assert moved


def test_javas_consumers_log_in_at_each_broker_and_read_on_while_leaders_move(
    cluster: KafkaCluster, replica: Listening, certificate: Certificate, tmp_path: Path
) -> None:
    """One in a group of either protocol. A record may come twice where a group's coordinator moved
    before it was committed.
    """

    def console(protocol: str, mechanism: str) -> ConsoleConsumer:
        group = {"group.protocol": protocol, "group.id": protocol}
        client = java_login(mechanism, "reader", certificate) | group
        return ConsoleConsumer(tmp_path / protocol, replica.address, TOPIC, client)

    logins = replica.listener.counts.requests["SASL_HANDSHAKE"]
    with console("consumer", "SCRAM-SHA-256") as new, console("classic", "PLAIN") as classic:
        for each in (new, classic):
            wait_for(each, RECORDS)
            assert len(each.records()) == PARTITIONS * RECORDS
        logins = replica.listener.counts.requests["SASL_HANDSHAKE"] - logins
        assert logins > 2 * len(cluster.running)
        move_leader(cluster)
        write(cluster, RECORDS, RECORDS + MORE)
        for each in (new, classic):
            wait_for(each, RECORDS + MORE)
        gone = cluster.leader(TOPIC, 0)
        cluster.brokers[gone].stop()
        write(cluster, RECORDS + MORE, RECORDS + 2 * MORE)
        for each in (new, classic):
            wait_for(each, RECORDS + 2 * MORE)
        cluster.brokers[gone].start()
        cluster.wait_for_replicas(TOPIC, PARTITIONS)
        cluster.move_leader(TOPIC, 0, gone)
        write(cluster, RECORDS + 2 * MORE, RECORDS + 3 * MORE)
        for each in (new, classic):
            wait_for(each, RECORDS + 3 * MORE)
            for one in each.records():
                assert one.value == value(one.partition, one.offset)
