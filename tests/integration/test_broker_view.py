"""The broker view against a stock broker: leadership, offsets, configs, TLS and SASL."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from kafka_formats.errors import Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import parse_partition_metadata
from rlm.leadership.broker_view import BrokerConnectionSettings, BrokerView
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer, NotLeading, TopicConfig
from rlm.local_log.log_dir import find_partitions
from tests.real.certificates import Certificate, make_certificate
from tests.real.kafka import REQUEST_DEADLINE_S, KafkaBroker
from tests.real.kafka_clients import NewRecord, flush, log_bounds, open_producer, produce, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PASSWORD = "wonder land /1="
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, certificate: Certificate
) -> Iterator[KafkaBroker]:
    """Node 1, with a listener for each security protocol; alice may do all, bob nothing."""
    users = f'user_alice="{PASSWORD}" user_bob="{PASSWORD}";'
    overrides = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:CN=127.0.0.1",
    }
    for listener in ("sasl", "secure"):
        prefix = f"listener.name.{listener}"
        overrides[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN} {users}"
        overrides[f"{prefix}.scram-sha-256.sasl.jaas.config"] = _SCRAM
        overrides[f"{prefix}.scram-sha-512.sasl.jaas.config"] = _SCRAM
    scram_users = [
        option
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for option in ("--add-scram", f"{mechanism}=[name=alice,password={PASSWORD}]")
    ]
    with KafkaBroker(
        tmp_path_factory.mktemp("kafka") / "broker",
        listeners={
            "TLS": "SSL",
            "MUTUAL": "SSL",
            "SASL": "SASL_PLAINTEXT",
            "SECURE": "SASL_SSL",
        },
        overrides=overrides,
        format_options=scram_users,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def second_broker(
    tmp_path_factory: pytest.TempPathFactory, broker: KafkaBroker
) -> Iterator[KafkaBroker]:
    home = tmp_path_factory.mktemp("kafka") / "second"
    with KafkaBroker(home, node_id=2, controller=broker) as running:
        yield running


def connection_settings(
    broker: KafkaBroker, listener: str = "PLAINTEXT", **more: Any
) -> BrokerConnectionSettings:
    host, port = broker.address(listener).split(":")
    return BrokerConnectionSettings(
        host=host,
        port=int(port),
        node_id=broker.node_id,
        kafka_cluster_id=broker.cluster_id,
        **{"request_timeout_s": 20.0, **more},
    )


@asynccontextmanager
async def view_of(settings: BrokerConnectionSettings) -> AsyncIterator[BrokerView]:
    view = BrokerView(
        settings,
        monotonic=time.monotonic,
        random_fraction=lambda: 0.5,
        new_nonce=lambda: "fyko+d2lbbFgONRv9qkxdawL",
    )
    try:
        yield view
    finally:
        await view.close()


def stable_end(broker: KafkaBroker, topic: str) -> int:
    return log_bounds(broker.bootstrap, topic, 0, isolation="read_committed")[1]


async def test_a_leader_answers_with_epoch_and_end(broker: KafkaBroker) -> None:
    broker.create_topic("led", partitions=2)
    produce(broker.bootstrap, "led", 1, [NewRecord(b"x")] * 7)
    async with view_of(connection_settings(broker)) as view:
        answers = await view.leadership([("led", 0), ("led", 1), ("unheard-of", 0)])
        starts = await view.local_log_start([("led", 1)])
    assert answers["led", 0] == Leads(leader_epoch=0, last_stable_offset=0)
    assert answers["led", 1] == Leads(leader_epoch=0, last_stable_offset=7)
    unknown = answers["unheard-of", 0]
    assert isinstance(unknown, NoAnswer)
    assert "unknown_topic_or_partition" in unknown.reason
    assert starts == {("led", 1): LocalLogStart(offset=0, leader_epoch=0)}


async def test_an_open_transaction_holds_the_last_stable_offset(broker: KafkaBroker) -> None:
    broker.create_topic("held")
    produce(broker.bootstrap, "held", 0, [NewRecord(b"before")] * 3)
    producer = open_producer(broker.bootstrap, {"transactional.id": "holds"})
    producer.init_transactions(REQUEST_DEADLINE_S)
    producer.begin_transaction()
    send(producer, "held", 0, [NewRecord(b"open")] * 2)
    flush(producer)
    produce(broker.bootstrap, "held", 0, [NewRecord(b"behind")] * 4)
    async with view_of(connection_settings(broker)) as view:
        while_open = await view.leadership([("held", 0)])
        producer.abort_transaction(REQUEST_DEADLINE_S)
        broker.wait_until(lambda: stable_end(broker, "held") > 3, "the abort marker")
        afterwards = await view.leadership([("held", 0)])
    assert while_open == {("held", 0): Leads(leader_epoch=0, last_stable_offset=3)}
    assert afterwards == {("held", 0): Leads(leader_epoch=0, last_stable_offset=10)}


async def test_delete_records_moves_the_local_log_start(broker: KafkaBroker) -> None:
    broker.create_topic("shortened")
    produce(broker.bootstrap, "shortened", 0, [NewRecord(b"x")] * 9)
    broker.delete_records("shortened", 0, 4)
    async with view_of(connection_settings(broker)) as view:
        starts = await view.local_log_start([("shortened", 0)])
    assert starts == {("shortened", 0): LocalLogStart(offset=4, leader_epoch=0)}
    # Its files say so long before it writes its log starts down, once a minute.
    broker.wait_until(lambda: log_start_on_disk(broker, "shortened") == 4, "the epochs' new start")


async def test_a_broker_that_does_not_lead_says_so_and_nobody_else_is_asked(
    broker: KafkaBroker, second_broker: KafkaBroker
) -> None:
    admin = broker.admin()
    new = NewTopic("spread", 2, replica_assignment=[[1], [2]])
    admin.create_topics([new])["spread"].result(REQUEST_DEADLINE_S)
    partitions = [("spread", 0), ("spread", 1)]
    async with view_of(connection_settings(broker)) as first:
        seen_by_first = await first.leadership(partitions)
    async with view_of(connection_settings(second_broker)) as second:
        seen_by_second = await second.leadership(partitions)
    assert seen_by_first == {partitions[0]: Leads(0, 0), partitions[1]: NotLeading()}
    assert seen_by_second == {partitions[0]: NotLeading(), partitions[1]: Leads(0, 0)}


async def test_a_follower_tells_if_it_follows_a_later_leader(
    broker: KafkaBroker, second_broker: KafkaBroker
) -> None:
    admin, new = broker.admin(), NewTopic("followed", 1, replica_assignment=[[2, 1]])
    admin.create_topics([new])["followed"].result(REQUEST_DEADLINE_S)
    name = ("followed", 0)
    second_broker.stop()
    async with view_of(connection_settings(broker)) as view:
        deadline = time.monotonic() + REQUEST_DEADLINE_S
        while not isinstance(leads := (await view.leadership([name]))[name], Leads):
            assert time.monotonic() < deadline, leads
        epoch = leads.leader_epoch
        assert epoch > 0
        assert [await view.knows_later_epoch(name, each) for each in (epoch - 1, epoch)] == [
            True,
            False,
        ]
    second_broker.start()
    async with view_of(connection_settings(second_broker)) as view:
        while (await view.knows_later_epoch(name, epoch - 1)) is not True:
            assert time.monotonic() < deadline + REQUEST_DEADLINE_S
        assert await view.leadership([name]) == {name: NotLeading()}
        assert [await view.knows_later_epoch(name, each) for each in (epoch, epoch + 1)] == [
            False,
            False,
        ]


def log_start_on_disk(broker: KafkaBroker, topic: str) -> int:
    scan = find_partitions([broker.log_dir], kafka_cluster_id=None)
    (found,) = (each for each in scan.partitions if each.partition.topic == topic)
    return found.local_log_start_offset


def topic_id(topic: str, *brokers: KafkaBroker) -> Uuid:
    """From the log directory of whichever broker has its one replica, once it made that."""
    paths = [each.log_dir / f"{topic}-0" / "partition.metadata" for each in brokers]
    brokers[0].wait_until(lambda: any(path.exists() for path in paths), f"a replica of {topic}")
    (path,) = (each for each in paths if each.exists())
    return parse_partition_metadata(path.read_bytes(), source=str(path))


async def test_topics_are_known_by_their_ids_until_they_are_deleted(
    broker: KafkaBroker, second_broker: KafkaBroker
) -> None:
    broker.create_topic("kept")
    broker.create_topic("deleted")
    ids = {name: topic_id(name, broker, second_broker) for name in ("kept", "deleted")}
    async with view_of(connection_settings(broker)) as view:
        found = await view.topic_ids(["kept", "deleted", "never-made"])
        assert isinstance(found.pop("never-made"), NoAnswer)
        assert found == ids
        asked = sorted(ids.values())
        assert await view.unknown_topic_ids(asked) == {1: frozenset(), 2: frozenset()}
        broker.delete_topic("deleted")
        gone = frozenset({ids["deleted"]})
        deadline = time.monotonic() + REQUEST_DEADLINE_S
        while (answers := await view.unknown_topic_ids(asked)) != {1: gone, 2: gone}:
            assert time.monotonic() < deadline, answers
        broker.create_topic("deleted")
        assert await view.unknown_topic_ids(asked) == {1: gone, 2: gone}


async def test_topic_configs_are_the_effective_ones(broker: KafkaBroker) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.bytes": "123456"}
    broker.create_topic("configured", config=config)
    async with view_of(connection_settings(broker)) as view:
        answers = await view.topic_configs(["configured", "unheard-of"])
    assert answers["configured"] == TopicConfig(
        cleanup_policy="compact,delete",
        retention_ms=604_800_000,
        retention_bytes=123_456,
        remote_storage_enable=False,
    )
    assert isinstance(answers["unheard-of"], NoAnswer)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("listener", "protocol"), [("SASL", "SASL_PLAINTEXT"), ("SECURE", "SASL_SSL")]
)
async def test_every_mechanism_logs_in(
    broker: KafkaBroker, certificate: Certificate, listener: str, protocol: str, mechanism: str
) -> None:
    settings = connection_settings(
        broker,
        listener,
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=PASSWORD,
        ssl_ca_file=certificate.certificate,
    )
    async with view_of(settings) as view:
        await view.check()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_refused_and_is_no_exception_for_the_loop(
    broker: KafkaBroker, mechanism: str
) -> None:
    settings = connection_settings(
        broker,
        "SASL",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password="wrong",
    )
    async with view_of(settings) as view:
        with pytest.raises(Refused, match=f"{mechanism} as 'alice'"):
            await view.check()
        answers = await view.leadership([("led", 0)])
    answer = answers["led", 0]
    assert isinstance(answer, NoAnswer)
    assert "alice" in answer.reason


async def test_a_user_without_rights_is_told_what_the_broker_said(broker: KafkaBroker) -> None:
    broker.create_topic("secret")
    settings = connection_settings(
        broker,
        "SASL",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="bob",
        sasl_password=PASSWORD,
    )
    async with view_of(settings) as view:
        answers = await view.leadership([("secret", 0)])
    answer = answers["secret", 0]
    assert isinstance(answer, NoAnswer)
    assert "topic_authorization_failed" in answer.reason


async def test_tls_needs_the_authority_and_mutual_tls_the_certificate(
    broker: KafkaBroker, certificate: Certificate
) -> None:
    trusting = connection_settings(
        broker, "TLS", security_protocol="SSL", ssl_ca_file=certificate.certificate
    )
    async with view_of(trusting) as view:
        await view.check()
    async with view_of(replace(trusting, ssl_ca_file=None)) as view:
        with pytest.raises(Refused, match="ssl_ca_file"):
            await view.check()
    mutual = replace(trusting, port=int(broker.address("MUTUAL").split(":")[1]))
    async with view_of(mutual) as view:
        with pytest.raises(RetryLater):
            await view.check()
    with_certificate = replace(
        mutual, ssl_certificate_file=certificate.certificate, ssl_key_file=certificate.key
    )
    async with view_of(with_certificate) as view:
        await view.check()


async def test_a_broker_of_another_cluster_or_another_node_is_refused(broker: KafkaBroker) -> None:
    settings = connection_settings(broker)
    async with view_of(replace(settings, kafka_cluster_id="MkU3OEVBNTcwNTJENDM2Qg")) as view:
        with pytest.raises(Refused, match="belongs to Kafka cluster c3RyYW5kbGluZS10ZXN0Mg"):
            await view.check()
    async with view_of(replace(settings, node_id=7)) as view:
        with pytest.raises(Refused, match="is not node 7"):
            await view.check()


async def test_a_bounced_broker_is_no_answer_and_then_an_answer_again(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "bounced") as bounced:
        bounced.create_topic("kept")
        async with view_of(connection_settings(bounced)) as view:
            assert await view.leadership([("kept", 0)]) == {("kept", 0): Leads(0, 0)}
            bounced.stop()
            assert isinstance((await view.leadership([("kept", 0)]))["kept", 0], NoAnswer)
            bounced.start()
            await view.check()
            answer = (await view.leadership([("kept", 0)]))["kept", 0]
    assert isinstance(answer, Leads)
    assert answer.leader_epoch > 0
