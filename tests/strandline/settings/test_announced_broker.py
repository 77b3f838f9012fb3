"""A node that hears its broker's address from the plug-in tells its password to no false broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_formats.errors import StrandlineError
from rlm.leadership.broker_view import BrokerConnectionSettings, BrokerView
from strandline.settings.kafka import KafkaSettings

PLAIN = {"sasl_mechanism": "PLAIN", "sasl_username": "node"}
SCRAM = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "node"}
PASSWORD = "the-nodes-own-password"

_VERSIONS = bytes.fromhex("0000 00000003 0012 0000 0004 0011 0000 0001 0024 0000 0002 00000000")
"""An answer to ApiVersions v2: ApiVersions, SaslHandshake, SaslAuthenticate."""
_MECHANISM = b"\0\0" + b"\0\0\0\1" + b"\0\5PLAIN"


async def _false_broker(
    heard: bytearray, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    for answer in (_VERSIONS, _MECHANISM, b""):
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        heard += frame
        writer.write((4 + len(answer)).to_bytes(4) + frame[4:8] + answer)
    writer.close()


async def test_plain_tells_the_password_to_whoever_listens_there() -> None:
    """The reason for the rule: an address is moved to, and logged in at, before it is known."""
    heard = bytearray()
    server = await asyncio.start_server(
        lambda reader, writer: _false_broker(heard, reader, writer), "127.0.0.1", 0
    )
    view = BrokerView(
        BrokerConnectionSettings(
            "", 0, 1, "kafka", "SASL_PLAINTEXT", "PLAIN", "node", PASSWORD, request_timeout_s=2.0
        ),
        monotonic=lambda: 0.0,
        random_fraction=lambda: 0.0,
        new_nonce=lambda: "nonce",
    )
    async with server:
        view.move_to(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(StrandlineError):
            await view.check()
    assert PASSWORD.encode() in heard


@pytest.mark.parametrize(
    "kafka",
    [
        {"security_protocol": "SASL_PLAINTEXT", **PLAIN},
        {"security_protocol": "SASL_SSL", **PLAIN},
    ],
)
def test_a_password_that_a_false_broker_would_be_told_is_refused(kafka: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        KafkaSettings(broker="announced", **kafka)
    assert "Set broker = host:port" in str(refused.value)


@pytest.mark.parametrize(
    "kafka",
    [
        {"broker": "announced"},
        {"broker": "announced", "sasl_mechanism": "PLAIN"},
        {"broker": "announced", "security_protocol": "SASL_SSL", **SCRAM},
        {"broker": "announced", "security_protocol": "SASL_PLAINTEXT", **SCRAM},
        {"broker": "announced", "security_protocol": "SASL_SSL", "ssl_ca_file": "ca.pem", **PLAIN},
        {"broker": "127.0.0.1:9092", "security_protocol": "SASL_PLAINTEXT", **PLAIN},
    ],
)
def test_what_tells_it_to_the_brokers_alone_is_taken(kafka: dict[str, Any]) -> None:
    KafkaSettings(**kafka)
