"""Consumers that log in at a stock broker with ACLs, over TLS and through a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._acl import AclOperation

from kafka_listener.virtual_nodes import port_of
from rlm.control.log_levels import LogArea
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
from tests.kafka_listener.connections.guarded_broker import (
    NODE,
    PASSWORD,
    allow,
    guarded_broker,
    login,
)
from tests.real.certificates import Certificate, make_certificate
from tests.real.kafka_clients import ConsumedRecord, consume_all
from tests.real.ports import ports_in_a_row

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BROKER_ID = 1


@pytest.fixture(scope="module")
def read_port() -> int:
    return ports_in_a_row(2 + BROKER_ID)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def over_tls(certificate: Certificate, mechanism: str, user: str) -> dict[str, str]:
    return login(mechanism, user) | {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificate.certificate),
    }


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    minio_store_config: StoreConfig,
    read_port: int,
    certificate: Certificate,
) -> Iterator[Scene]:
    """reader may read, describer hear of the topic; the node logs all that it can."""
    folder = tmp_path_factory.mktemp("logins")
    store = replace(minio_store_config, prefix="e2e/logins/")
    (folder / "password").write_text(PASSWORD)
    with guarded_broker(folder / "broker", certificate) as broker:
        broker.create_topic(TOPIC, config=TOPIC_CONFIG)
        allow(broker, "reader", TOPIC, AclOperation.READ)
        allow(broker, "describer", TOPIC, AclOperation.DESCRIBE)
        settings = node_settings(folder, broker, store)
        settings["kafka"] |= {
            "broker": broker.address("SASL"),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": NODE.mechanism,
            "sasl_username": NODE.username,
            "sasl_password_file": str(folder / "password"),
        }
        settings["read"] = {
            "listen": f"127.0.0.1:{read_port}",
            "authentication": "sasl",
            "tls_certificate_file": str(certificate.certificate),
            "tls_key_file": str(certificate.key),
        }
        settings["log.levels"] = dict.fromkeys(LogArea, "debug")
        with NodeProcess(folder / "node", settings) as node:
            yield Scene(broker, node, store, 1)


@pytest.fixture(scope="module")
def seen(stage: Scene) -> list[ConsumedRecord]:
    """All records; then local retention takes the sealed segments."""
    with Writer(stage.broker.bootstrap, TOPIC, 1) as writer:
        stage.wait_for_copies(3)
    writer.write_filler()
    stage.wait_until_all_is_copied()
    found = consume_all(stage.broker.bootstrap, TOPIC, 0)
    stage.drop_locally([stage.keep(0)])
    return found


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_who_may_read_reads_the_whole_history(
    stage: Scene,
    seen: list[ConsumedRecord],
    read_port: int,
    certificate: Certificate,
    mechanism: str,
) -> None:
    address = f"127.0.0.1:{port_of(read_port, BROKER_ID)}"
    assert seen[0].offset == 0
    client = over_tls(certificate, mechanism, "reader")
    assert_same(consume_all(address, TOPIC, 0, config=client), seen)
    text = PLAIN.get(f"{stage.node.url}/metrics").text
    (sent,) = (line for line in text.splitlines() if 'read_bytes_total{source="tier"}' in line)
    assert float(sent.rsplit(" ", 1)[1]) > 0


def test_who_may_not_is_told_so_and_no_secret_is_in_the_nodes_log(
    stage: Scene, seen: list[ConsumedRecord], read_port: int, certificate: Certificate
) -> None:
    address = f"127.0.0.1:{port_of(read_port, BROKER_ID)}"
    with pytest.raises(KafkaException) as refused:
        consume_all(address, TOPIC, 0, config=over_tls(certificate, "PLAIN", "describer"))
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert PASSWORD not in stage.node.log
