"""Clients that log in at a stock broker through a replica, and ACLs that forbid."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin._acl import AclOperation

from kafka_listener.access.login import MECHANISMS
from kafka_listener.access.rights import ReadableTopics
from kafka_listener.connections.brokers import BrokerSecurity
from kafka_listener.connections.listener import ReadAccess
from kafka_listener.connections.logins import WITH_A_CERTIFICATE
from tests.kafka_listener.connections.guarded_broker import (
    NODE,
    PASSWORD,
    SCRAM,
    SESSION_S,
    allow,
    guarded_broker,
    java_login,
    login,
    revoke,
)
from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.certificates import KEYSTORE_PASSWORD, Certificate, keystore, make_certificate
from tests.real.console_consumer import ConsoleConsumer
from tests.real.kafka import KafkaBroker, run_tool
from tests.real.kafka_clients import NewRecord, produce

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC, HIDDEN = "orders", "salaries"
RECORDS = 300
ON_BROKER_FROM = 200
AUTHORISATION_S = 1.0
ACCESS = ReadAccess(mechanisms=MECHANISMS, authorisation_s=AUTHORISATION_S)
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def value(number: int) -> bytes:
    return b"%06d" % number + b"x" * 300


ALL = [value(number) for number in range(RECORDS)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, certificate: Certificate
) -> Iterator[KafkaBroker]:
    """reader may read orders, describer hear of both topics, stranger nothing."""
    folder = tmp_path_factory.mktemp("guarded")
    with guarded_broker(folder / "broker", certificate) as started:
        for topic in (TOPIC, HIDDEN):
            started.create_topic(topic, config={"internal.segment.bytes": "16384"})
            records = [NewRecord(each) for each in ALL]
            produce(started.bootstrap, topic, 0, records, config={"batch.size": "2000"})
            allow(started, "describer", topic, AclOperation.DESCRIBE)
        allow(started, "reader", TOPIC, AclOperation.READ)
        yield started


@pytest.fixture(scope="module")
def tier(broker: KafkaBroker) -> TierInMemory:
    kept = TierInMemory()
    for topic in (TOPIC, HIDDEN):
        kept.take(topic, 0, broker.segment_files(topic, 0)[:-1])
        broker.delete_records(topic, 0, ON_BROKER_FROM)
    return kept


@pytest.fixture(scope="module")
def replica(broker: KafkaBroker, tier: TierInMemory) -> Iterator[Listening]:
    with listening(broker, tier) as started:
        yield started


def listening(broker: KafkaBroker, tier: TierInMemory, listener: str = "SASL") -> Listening:
    security = BrokerSecurity(sasl=NODE)
    return Listening(broker.address(listener), tier, access=ACCESS, security=security)


SMALL_FETCHES: dict[str, str | int] = {
    "fetch.message.max.bytes": 4_000,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,
}
"""A consumer with these does not read far ahead."""


def consumer(replica: Listening, login: dict[str, str], **more: str | int) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": replica.address, "group.id": "unused", "log_level": 0,
            "enable.auto.commit": False, "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100, **login, **more,
        }
    )  # fmt: skip


def read_from_0(replica: Listening, login: dict[str, str], topic: str = TOPIC) -> list[bytes]:
    reading = consumer(replica, login)
    reading.assign([Partition(topic, 0, 0)])
    read: list[bytes] = []
    try:
        while len(read) < RECORDS:
            message = reading.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            read.append(message.value() or b"")
    finally:
        reading.close()
    return read


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_may_read_reads_from_0_to_the_end(replica: Listening, mechanism: str) -> None:
    assert read_from_0(replica, login(mechanism, "reader")) == ALL


def test_a_group_of_javas_consumer_logs_in_and_reads_everything(
    replica: Listening, tmp_path: Path
) -> None:
    assert [line.encode() for line in java_reads(replica, tmp_path, PASSWORD).splitlines()] == ALL


def java_reads(replica: Listening, folder: Path, password: str, *more: str) -> str:
    settings = folder / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} username="reader" password="{password}";\n'
    )
    return run_tool(
        CONSOLE, "--bootstrap-server", replica.address, "--topic", TOPIC, "--from-beginning",
        "--command-config", str(settings), "--group", "waiting" if more else "java",
        *(more or ("--max-messages", str(RECORDS), "--timeout-ms", "60000")),
    )  # fmt: skip


def test_a_wrong_password_is_the_brokers_own_error(replica: Listening, tmp_path: Path) -> None:
    assert (
        "SaslAuthenticationException: Authentication failed during authentication due to invalid "
        "credentials with SASL mechanism SCRAM-SHA-512"
    ) in java_reads(replica, tmp_path, "wrong")
    seen: list[str] = []
    settings = login("PLAIN", "reader", "wrong")
    wrong = Consumer(
        {
            "bootstrap.servers": replica.address, "group.id": "wrong", "log_level": 0, **settings,
            "error_cb": lambda error: seen.append(str(error)),
        }
    )  # fmt: skip
    wrong.subscribe([TOPIC])
    until = time.monotonic() + 60
    while not any("Invalid username or password" in each for each in seen):
        assert time.monotonic() < until, seen
        wrong.poll(0.2)
    wrong.close()


@pytest.mark.parametrize(("user", "topic"), [("describer", TOPIC), ("reader", HIDDEN)])
def test_who_may_not_read_is_told_so_and_nothing_is_read(
    replica: Listening, tier: TierInMemory, user: str, topic: str
) -> None:
    before = len(tier.asked)
    again = {"auto.offset.reset": "earliest", "group.id": user}
    reading = consumer(replica, login("SCRAM-SHA-256", user), **again)
    reading.subscribe([topic])
    refused = reading.poll(60)
    assert refused is not None
    error = refused.error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    reading.close()
    assert len(tier.asked) == before


def test_a_right_that_is_taken_back_ends_within_the_time_of_the_settings(
    replica: Listening, broker: KafkaBroker
) -> None:
    allow(broker, "stranger", TOPIC, AclOperation.READ)
    reading = consumer(
        replica,
        login("PLAIN", "stranger"),
        **SMALL_FETCHES,
    )
    reading.assign([Partition(TOPIC, 0, 0)])
    first = reading.poll(60)
    assert first is not None
    assert first.value() == value(0)
    revoke(broker, "stranger", TOPIC)
    revoked_at = time.monotonic()
    while (message := reading.poll(60)) is not None and message.error() is None:
        time.sleep(0.05)
        if message.offset() == ON_BROKER_FROM - 1:
            reading.seek(Partition(TOPIC, 0, 0))
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert time.monotonic() - revoked_at < AUTHORISATION_S + 10
    reading.close()


def served_by(certificate: Certificate, *, asks_for_one: bool) -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate.certificate, certificate.key)
    if asks_for_one:
        tls.load_verify_locations(certificate.certificate)
        tls.verify_mode = ssl.CERT_REQUIRED
    return tls


def test_logins_pass_over_tls_to_a_broker_with_tls(
    broker: KafkaBroker, tier: TierInMemory, certificate: Certificate
) -> None:
    security = BrokerSecurity(
        lambda: ssl.create_default_context(cafile=certificate.certificate), NODE
    )
    access = ReadAccess(mechanisms=MECHANISMS, tls=served_by(certificate, asks_for_one=False))
    with Listening(broker.address("SECURE"), tier, access=access, security=security) as replica:
        client = login("PLAIN", "reader") | {
            "security.protocol": "SASL_SSL", "ssl.ca.location": str(certificate.certificate),
        }  # fmt: skip
        assert read_from_0(replica, client) == ALL
        assert replica.listener.counts.tier_bytes > 0


def test_clients_with_certificates_read_the_topics_of_the_settings_as_the_node(
    broker: KafkaBroker, tier: TierInMemory, certificate: Certificate
) -> None:
    access = ReadAccess(
        why_not=WITH_A_CERTIFICATE,
        readable=ReadableTopics((TOPIC,)),
        tls=served_by(certificate, asks_for_one=True),
    )
    security = BrokerSecurity(sasl=NODE)
    client = {
        "security.protocol": "SSL", "ssl.ca.location": str(certificate.certificate),
        "ssl.certificate.location": str(certificate.certificate),
        "ssl.key.location": str(certificate.key),
    }  # fmt: skip
    with Listening(broker.address("SASL"), tier, access=access, security=security) as replica:
        assert read_from_0(replica, client) == ALL
        hidden = consumer(replica, client, **{"auto.offset.reset": "earliest"})
        assert HIDDEN not in hidden.list_topics(timeout=60).topics
        hidden.subscribe([HIDDEN])
        refused = hidden.poll(60)
        assert refused is not None
        error = refused.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        hidden.close()
        without = consumer(replica, {k: client[k] for k in list(client)[:2]})
        with pytest.raises(KafkaException):
            without.list_topics(timeout=5)
        without.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_group_of_the_new_protocol_of_javas_consumer_logs_in_over_tls(
    broker: KafkaBroker,
    tier: TierInMemory,
    certificate: Certificate,
    tmp_path: Path,
    mechanism: str,
) -> None:
    """The broker has what it commits at its end."""
    security = BrokerSecurity(
        lambda: ssl.create_default_context(cafile=certificate.certificate), NODE
    )
    access = ReadAccess(mechanisms=MECHANISMS, tls=served_by(certificate, asks_for_one=False))
    group = {"group.protocol": "consumer", "group.id": f"new-{mechanism}"}
    client = java_login(mechanism, "reader", certificate) | group
    with Listening(broker.address("SECURE"), tier, access=access, security=security) as replica:
        with ConsoleConsumer(tmp_path / "first", replica.address, TOPIC, client) as first:
            read = first.wait_for(RECORDS)
            first.stop()
        assert [each.value for each in read] == ALL
        assert replica.listener.counts.requests["OFFSET_COMMIT"] > 0
        assert replica.listener.counts.requests["CONSUMER_GROUP_HEARTBEAT"] > 0
    assert committed_at(broker, group["group.id"]) == RECORDS


def committed_at(broker: KafkaBroker, group: str) -> int:
    """The group's offset by the broker's own word."""
    asking = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        (place,) = asking.committed([Partition(TOPIC, 0)], timeout=60)
        return place.offset
    finally:
        asking.close()


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_javas_consumer_with_a_certificate_reads_as_the_node(
    broker: KafkaBroker, tier: TierInMemory, certificate: Certificate, tmp_path: Path, kind: str
) -> None:
    access = ReadAccess(
        why_not=WITH_A_CERTIFICATE,
        readable=ReadableTopics((TOPIC,)),
        tls=served_by(certificate, asks_for_one=True),
    )
    trusts = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.certificate),
    }
    shows = {"ssl.keystore.type": kind, "ssl.keystore.location": str(certificate.both)}
    if kind == "PKCS12":
        shows |= {
            "ssl.keystore.location": str(keystore(certificate)),
            "ssl.keystore.password": KEYSTORE_PASSWORD,
            "ssl.key.password": KEYSTORE_PASSWORD,
        }
    security = BrokerSecurity(sasl=NODE)
    with Listening(broker.address("SASL"), tier, access=access, security=security) as replica:
        client = trusts | shows | {"group.id": f"with-{kind}"}
        with ConsoleConsumer(tmp_path / "shows", replica.address, TOPIC, client) as console:
            assert [each.value for each in console.wait_for(RECORDS)] == ALL
        with ConsoleConsumer(tmp_path / "without", replica.address, TOPIC, trusts) as console:
            console.ended()
        # The alert of RFC 8446, 6.2, in the words of Java's own TLS.
        assert "Received fatal alert: certificate_required" in console.said
        assert not console.records()


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What clients were refused, but for coming too late: they log in again some tenths of a second
    before their session ends, which a busy machine may take from them.
    """
    told = [each.getMessage() for each in caplog.records if "read_counts" in each.name]
    late = "sent a request after its session had ended: the client has to log in again (KIP-368)"
    return [line for line in told if not line.endswith(late)]


def test_a_consumer_that_logs_in_again_and_again_reads_on(
    broker: KafkaBroker, tier: TierInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Sessions are shorter than the reading, and so is the tier: every byte of it is read."""
    with listening(broker, tier, "SHORT") as replica:
        reading = consumer(replica, login("SCRAM-SHA-512", "reader"), **SMALL_FETCHES)
        reading.assign([Partition(TOPIC, 0, 0)])
        read: list[bytes | None] = []
        began = time.monotonic()
        while len(read) < RECORDS:
            message = reading.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            read.append(message.value())
            time.sleep(3 * SESSION_S / RECORDS)
        reading.close()
        assert read == ALL
        assert time.monotonic() - began > 2 * SESSION_S
        assert not refusals(caplog)


def test_javas_consumer_logs_in_again_while_it_waits_at_the_end(
    broker: KafkaBroker, tier: TierInMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(broker, tier, "SHORT") as replica:
        waits = ("--timeout-ms", str(int(3 * SESSION_S * 1000)))
        read = java_reads(replica, tmp_path, PASSWORD, *waits)
        assert [line.encode() for line in read.splitlines() if line.startswith("0")] == ALL
        counts = replica.listener.counts
        assert not refusals(caplog)
        # Each connection asks for versions once.
        assert counts.requests["SASL_HANDSHAKE"] > counts.requests["API_VERSIONS"]


def test_a_user_reads_no_faster_than_its_rate(broker: KafkaBroker, tier: TierInMemory) -> None:
    tiered = sum(len(batch.raw) for batch in tier.batches[TOPIC, 0])
    access = replace(ACCESS, user_bytes_per_s=tiered // 4)
    security = BrokerSecurity(sasl=NODE)
    with Listening(broker.address("SASL"), tier, access=access, security=security) as replica:
        began = time.monotonic()
        assert read_from_0(replica, login("SCRAM-SHA-512", "reader")) == ALL
        assert time.monotonic() - began > 2


def test_who_is_logged_in_reads_the_tier_on_while_no_broker_is_there(
    broker: KafkaBroker, tier: TierInMemory
) -> None:
    with listening(broker, tier) as replica:
        asking = {"topic.metadata.refresh.interval.ms": 500}
        reading = consumer(replica, login("SCRAM-SHA-512", "reader"), **SMALL_FETCHES, **asking)
        reading.assign([Partition(TOPIC, 0, 0)])
        first = reading.poll(60)
        assert first is not None
        assert first.value() == value(0)
        broker.stop()
        late = consumer(replica, login("SCRAM-SHA-512", "reader"))
        try:
            tiered = tier.batches[TOPIC, 0][-1].last + 1
            time.sleep(3)
            read = [reading.poll(60) for _ in range(tiered - 1)]
            assert [each and each.value() for each in read] == ALL[1:tiered]
            late.assign([Partition(TOPIC, 0, 0)])
            assert late.poll(3) is None, "it waits"
        finally:
            broker.start()
        for each, rest in ((reading, ALL[tiered:]), (late, ALL)):
            behind = [each.poll(60) for _ in rest]
            assert [found and found.value() for found in behind] == rest
            each.close()
