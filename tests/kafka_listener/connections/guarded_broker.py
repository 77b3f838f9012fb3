"""A stock broker whose clients log in, with ACLs, and what a read replica needs to know of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from kafka_client.sasl import SaslCredentials
from tests.real.certificates import Certificate
from tests.real.kafka import REQUEST_DEADLINE_S, KafkaBroker
from tests.real.kafka_cluster import KafkaCluster

PASSWORD = "wonder land /1="
NODE = SaslCredentials("SCRAM-SHA-512", "node", PASSWORD)
USERS = ("node", "reader", "describer", "stranger")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SESSION_S = 3.0
"""Of a login at the listener SHORT."""


class Guard(NamedTuple):
    """A guarded broker's listeners, properties, and options of its format."""

    listeners: dict[str, str]
    overrides: dict[str, str]
    format_options: list[str]


def guard(certificate: Certificate) -> Guard:
    """The listeners SASL (plain text) and SECURE (TLS) take every mechanism; those who log in at
    SHORT have to do it again and again. Without ACLs only the node may read.
    """
    listed = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    overrides = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.both),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:node",
        "connection.failed.authentication.delay.ms": "100",
    }
    for listener in ("sasl", "secure", "short"):
        prefix = f"listener.name.{listener}"
        overrides[f"{prefix}.plain.sasl.jaas.config"] = f"{PLAIN} {listed};"
        overrides[f"{prefix}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM};"
        overrides[f"{prefix}.scram-sha-512.sasl.jaas.config"] = f"{SCRAM};"
        overrides[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{OAUTH};"
    overrides["listener.name.short.scram-sha-512.connections.max.reauth.ms"] = str(
        int(SESSION_S * 1000)
    )
    scram_users = [
        option
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name in USERS
        for option in ("--add-scram", f"{mechanism}=[name={name},password={PASSWORD}]")
    ]
    listeners = {"SASL": "SASL_PLAINTEXT", "SECURE": "SASL_SSL", "SHORT": "SASL_PLAINTEXT"}
    return Guard(listeners, overrides, scram_users)


def guarded_broker(home: Path, certificate: Certificate) -> KafkaBroker:
    """With the listeners of `guard`."""
    return KafkaBroker(home, **guard(certificate)._asdict())


def java_login(mechanism: str, user: str, certificate: Certificate) -> dict[str, str]:
    """Properties of a Java client that logs in over TLS."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{user}" password="{PASSWORD}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.certificate),
    }


def _acl(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def allow(
    broker: KafkaBroker | KafkaCluster, user: str, topic: str, operation: AclOperation
) -> None:
    """Let a user do that with the topic, and read by any group."""
    admin = broker.admin()
    bindings = [
        _acl(user, ResourceType.TOPIC, topic, operation),
        _acl(user, ResourceType.GROUP, "*", AclOperation.READ),
    ]
    for done in admin.create_acls(bindings).values():
        done.result(REQUEST_DEADLINE_S)


def revoke(broker: KafkaBroker, user: str, topic: str) -> None:
    """Take back whatever the user may do with the topic."""
    admin = broker.admin()
    named = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        None,  # type: ignore[arg-type]  # any host
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for done in admin.delete_acls([named]).values():
        done.result(REQUEST_DEADLINE_S)


def login(mechanism: str, user: str, password: str = PASSWORD) -> dict[str, str]:
    """A librdkafka client's settings."""
    common = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return common | {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={user}",
        }
    return common | {"sasl.username": user, "sasl.password": password}
