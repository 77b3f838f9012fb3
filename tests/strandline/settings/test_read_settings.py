"""Who may read through a read listener: what the settings refuse, each with an instruction."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from strandline.settings.settings import Settings

TLS = {"tls_certificate_file": "cert.pem", "tls_key_file": "key.pem"}
SCRAM = ["SCRAM-SHA-512"]
FAR, NEAR = "replica:19092", "127.0.0.1:19092"


def settings(read: dict[str, Any], **kafka: Any) -> Settings:
    kafka = {"bootstrap": ["127.0.0.1:9092"], **kafka}
    return Settings.model_validate({"read": {"listen": NEAR, **read}, "kafka": kafka})


@pytest.mark.parametrize(
    ("read", "kafka", "why"),
    [
        ({"listen": FAR}, {}, 'set authentication = "sasl" or "certificate"'),
        ({"listen": FAR, **TLS}, {}, 'set authentication = "sasl" or "certificate"'),
        ({"tls_key_file": "key.pem"}, {}, "or neither"),
        ({"authentication": "certificate", **TLS}, {}, "needs tls_certificate_file"),
        ({"authentication": "sasl", "tls_ca_file": "ca.pem", **TLS}, {}, "a second identity"),
        (
            {"authentication": "sasl", "listen": FAR},
            {"security_protocol": "SASL_SSL"},
            "sasl_mechanisms = ",
        ),
        (
            {"authentication": "sasl", "topics": ["orders"]},
            {"security_protocol": "SASL_PLAINTEXT"},
            "the brokers' ACLs apply",
        ),
        ({"authentication": "sasl"}, {}, "set kafka.security_protocol to SASL_PLAINTEXT"),
        ({"authentication": "sasl"}, {"security_protocol": "SSL"}, "clients log in at the brokers"),
        (
            {"authentication": "sasl"},
            {"security_protocol": "SASL_PLAINTEXT", "bootstrap": ["127.0.0.1:9092", "b:9092"]},
            "to the brokers unencrypted",
        ),
        (
            {"authentication": "sasl", "sasl_mechanisms": SCRAM},
            {
                "security_protocol": "SASL_PLAINTEXT",
                "bootstrap": ["b:9092"],
                "sasl_mechanism": "PLAIN",
            },
            "kafka.sasl_mechanism",
        ),
        ({"authentication": "certificate", "tls_ca_file": "ca", **TLS}, {}, "read.topics is empty"),
        ({}, {"security_protocol": "SSL"}, "read.topics is empty"),
        ({}, {"security_protocol": "SASL_PLAINTEXT"}, "read.topics is empty"),
        ({"sasl_mechanisms": ["GSSAPI"]}, {}, "Input should be 'PLAIN'"),
    ],
)
def test_what_would_let_others_read_is_refused_with_an_instruction(
    read: dict[str, Any], kafka: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(read, **kafka)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("read", "kafka"),
    [
        ({}, {}),
        (TLS, {}),
        ({"topics": ["orders"]}, {"security_protocol": "SASL_SSL"}),
        ({"authentication": "sasl"}, {"security_protocol": "SASL_PLAINTEXT"}),
        ({"authentication": "sasl", "listen": FAR, **TLS}, {"security_protocol": "SASL_SSL"}),
        (
            {"authentication": "sasl", "listen": FAR, "sasl_mechanisms": SCRAM},
            {"security_protocol": "SASL_PLAINTEXT", "bootstrap": ["b:9092"]},
        ),
        (
            {
                "authentication": "certificate", "listen": FAR, "tls_ca_file": "ca.pem",
                "topics": ["orders", "logs.*"], **TLS,
            },
            {"security_protocol": "SSL"},
        ),
    ],
)  # fmt: skip
def test_these_are_taken(read: dict[str, Any], kafka: dict[str, Any]) -> None:
    assert settings(read, **kafka).read.listen


def test_all_topics_are_given_only_where_the_list_may_be_empty() -> None:
    assert settings({}).read.given_topics == ("*",)
    assert settings({"topics": ["orders"]}).read.given_topics == ("orders",)
