"""PLAIN and SCRAM, against the examples of the RFCs and against hostile servers."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kafka_client.sasl import SaslClient, SaslCredentials, sasl_client
from kafka_formats.errors import InvalidRequest, Refused

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(
    mechanism: str = "SCRAM-SHA-256", username: str = "user", password: str = "pencil"
) -> SaslClient:
    return sasl_client(SaslCredentials(mechanism, username, password), lambda: NONCE)


def test_plain_sends_name_and_password_once() -> None:
    plain = client("PLAIN", "jürgen", "a,b=c")
    assert plain.first_message() == "\0jürgen\0a,b=c".encode()
    assert plain.answer(b"") is None


def test_scram_sha_256_says_what_the_example_of_rfc_7677_says() -> None:
    scram = client()
    assert scram.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.answer(SERVER_FIRST) == CLIENT_FINAL
    assert scram.answer(SERVER_FINAL) is None


def test_scram_sha_512_proves_the_password_to_a_server_that_knows_it() -> None:
    scram = client("SCRAM-SHA-512")
    first = scram.first_message().removeprefix(b"n,,")
    server_first = b"r=" + NONCE.encode() + b"srv,s=" + base64.b64encode(b"salt") + b",i=4096"
    final = scram.answer(server_first)
    assert final is not None
    without_proof, _, proof = final.rpartition(b",p=")
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"salt", 4096)
    stored_key = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signed = b",".join((first, server_first, without_proof))
    signature = hmac.digest(stored_key, signed, "sha512")
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(client_key).digest() == stored_key
    server_key = hmac.digest(salted, b"Server Key", "sha512")
    proof_of_server = base64.b64encode(hmac.digest(server_key, signed, "sha512"))
    assert scram.answer(b"v=" + proof_of_server) is None


def test_commas_and_equal_signs_in_a_name_are_escaped() -> None:
    assert client(username="a=b,c").first_message() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


@pytest.mark.parametrize(
    ("server_first", "why"),
    [
        (b"r=somebodyElse,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=%%%,i=4096", "salt"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,i=4096", "salt"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=1", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=99999999999999999999", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=-4096", "iterations"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=٤٠٩٦".encode(), "iterations"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "nonce"),
    ],
)
def test_a_wrong_first_message_of_the_server_is_refused(server_first: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        client().answer(server_first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"v=%%", b"\xff", b"x=1"])
def test_a_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    scram = client()
    scram.answer(SERVER_FIRST)
    with pytest.raises(Refused):
        scram.answer(final)


def test_the_servers_own_error_is_in_the_message() -> None:
    scram = client()
    scram.answer(SERVER_FIRST)
    with pytest.raises(Refused, match="invalid-proof"):
        scram.answer(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("mechanism", "username", "password", "field"),
    [
        ("GSSAPI", "user", "pencil", "sasl_mechanism"),
        ("PLAIN", "", "pencil", "sasl_username"),
        ("PLAIN", "us\0er", "pencil", "sasl_username"),
        ("PLAIN", "user", "", "sasl_password"),
    ],
)
def test_unusable_credentials_are_invalid(
    mechanism: str, username: str, password: str, field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field):
        SaslCredentials(mechanism, username, password)


def test_a_password_is_not_shown() -> None:
    assert "pencil" not in repr(SaslCredentials("PLAIN", "user", "pencil"))
