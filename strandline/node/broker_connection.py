"""Connections to brokers, from the `[kafka]` settings and their secret files.

This module is imported only if a broker is configured: the Kafka protocol's schemas are slow to
import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_formats.errors import InvalidRequest
from rlm.leadership.broker_view import BrokerConnectionSettings, BrokerView
from strandline.node import ambient
from strandline.settings.kafka import ANNOUNCED
from strandline.settings.settings import KafkaSettings

if TYPE_CHECKING:
    from kafka_listener.connections.brokers import BrokerSecurity


def open_broker_view(kafka: KafkaSettings, *, node_id: int, kafka_cluster_id: str) -> BrokerView:
    """A view of the node's own broker, which must have the id `node_id`. It connects at the first
    request.
    """
    return BrokerView(
        broker_connection(kafka, node_id=node_id, kafka_cluster_id=kafka_cluster_id),
        monotonic=ambient.monotonic,
        random_fraction=ambient.random_fraction,
        new_nonce=ambient.new_nonce,
    )


def broker_connection(
    kafka: KafkaSettings, *, node_id: int, kafka_cluster_id: str
) -> BrokerConnectionSettings:
    """The address and credentials of the node's broker; the port is 0 until its plug-in announces
    the address. Raises InvalidRequest if the address is not host:port or a secret can't be read.
    """
    host, port = ("", "0") if kafka.broker == ANNOUNCED else _address(kafka.broker)
    return BrokerConnectionSettings(
        host=host.strip("[]"),
        port=int(port),
        node_id=node_id,
        kafka_cluster_id=kafka_cluster_id,
        security_protocol=kafka.security_protocol,
        sasl_mechanism=kafka.sasl_mechanism,
        sasl_username=kafka.sasl_username,
        sasl_password=_secret(kafka.sasl_password_file),
        ssl_ca_file=kafka.ssl_ca_file,
        ssl_certificate_file=kafka.ssl_certificate_file,
        ssl_key_file=kafka.ssl_key_file,
        request_timeout_s=kafka.request_timeout_s,
    )


def broker_security(kafka: KafkaSettings) -> BrokerSecurity:
    """TLS and credentials for a connection to any broker of the cluster. Raises InvalidRequest if
    they can't be used.
    """
    from kafka_listener.connections.brokers import BrokerSecurity  # needed by read replicas only

    how = broker_connection(
        kafka.model_copy(update={"broker": ANNOUNCED}), node_id=-1, kafka_cluster_id=""
    )
    return BrokerSecurity(how.tls, how.sasl())


def _address(text: str) -> tuple[str, str]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidRequest(
            f"{text!r} is not a broker's address: write it as host:port", field="kafka.broker"
        )
    return host, port


def _secret(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"{path} can't be read as text ({error}): correct kafka.sasl_password_file"
        ) from None
