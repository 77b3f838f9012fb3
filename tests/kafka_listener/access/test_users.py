"""Names of users in the first messages of logins."""

from __future__ import annotations

import base64
import json

import pytest

from kafka_client.sasl import SaslCredentials, sasl_client
from kafka_listener.access.users import NAME_CHARACTERS_MAX, UNKNOWN, parse_user


def bearer(claims: object) -> bytes:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"n,,\x01auth=Bearer e30.{payload}.sig\x01\x01".encode()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["alice", "a=b,c", "Zoë"])
def test_a_users_name_is_found_as_clients_send_it(mechanism: str, name: str) -> None:
    client = sasl_client(SaslCredentials(mechanism, name, "secret"), lambda: "nonce")
    assert parse_user(mechanism, client.first_message()) == name


@pytest.mark.parametrize("name", ["alice", "Zoë", "a" * 15])
def test_the_subject_of_a_token_is_its_user(name: str) -> None:
    assert parse_user("OAUTHBEARER", bearer({"sub": name, "exp": 1})) == name


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"alice"),
        ("PLAIN", b"\0a\0b\0c"),
        ("SCRAM-SHA-512", b"\xff\xfe"),
        ("OAUTHBEARER", b""),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer abc\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a.!!!!.c\x01\x01"),
        ("OAUTHBEARER", bearer(["sub"])),
        ("OAUTHBEARER", bearer({"sub": 5})),
    ],
)
def test_other_messages_have_none(mechanism: str, message: bytes) -> None:
    assert parse_user(mechanism, message) == UNKNOWN


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce,n=bob"),
        ("SCRAM-SHA-512", b"n,a=alice,m=x,n=alice,r=nonce,n=bob,n=bob"),
        (
            "OAUTHBEARER",
            bearer({"sub": "alice"}).replace(b"auth=", b"x=auth=Bearer e30.e30.x\x01auth="),
        ),
        ("OAUTHBEARER", bearer({"sub": "bob"})[:-1] + bearer({"sub": "alice"})[4:]),
        ("OAUTHBEARER", bearer({"sub": "alice"}).replace(b"Bearer ", b"bEARER   ")),
    ],
)
def test_nobody_reads_at_the_rate_of_another_name_than_the_broker_takes(
    mechanism: str, message: bytes
) -> None:
    assert parse_user(mechanism, message) == "alice"


def test_a_name_is_bounded() -> None:
    assert len(parse_user("PLAIN", b"\0" + b"x" * 60_000 + b"\0secret")) == NAME_CHARACTERS_MAX
