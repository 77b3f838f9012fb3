"""The listener's half of SASL lets in who knows the secret, and nobody else."""

from __future__ import annotations

import pytest

from kafka_client.sasl import SaslCredentials, sasl_client
from kafka_formats.errors import Refused
from rlmm.wire.sasl_server import PEER_USER, PLAIN, SCRAM, SaslServer, SecretVerifier

VERIFIER = SecretVerifier.of("correct horse", b"some salt")


def server(*, plain_allowed: bool = True) -> SaslServer:
    return SaslServer(VERIFIER, lambda: "server-nonce", plain_allowed=plain_allowed)


def log_in(serving: SaslServer, mechanism: str, user: str, secret: str) -> None:
    """The whole exchange with the client that nodes use."""
    assert serving.choose(mechanism)
    client = sasl_client(SaslCredentials(mechanism, user, secret), lambda: "client-nonce")
    message: bytes | None = client.first_message()
    while message is not None:
        message = client.answer(serving.answer(message))


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_who_knows_the_secret_gets_in(mechanism: str) -> None:
    serving = server()
    log_in(serving, mechanism, PEER_USER, "correct horse")
    assert serving.done


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
@pytest.mark.parametrize(
    ("user", "secret"), [(PEER_USER, "wrong horse"), ("somebody", "correct horse")]
)
def test_another_user_or_secret_does_not(mechanism: str, user: str, secret: str) -> None:
    serving = server()
    with pytest.raises(Refused, match="the same on every node"):
        log_in(serving, mechanism, user, secret)
    assert not serving.done


def test_one_wrong_message_is_all_that_is_borne() -> None:
    serving = server()
    with pytest.raises(Refused):
        log_in(serving, PLAIN, PEER_USER, "wrong")
    assert not serving.choose(PLAIN)
    assert not serving.choose(SCRAM)
    with pytest.raises(Refused):
        serving.answer(b"\0strandline-peer\0correct horse")
    assert not serving.done


def test_a_proof_is_good_once() -> None:
    """What was overheard is bound to the nonce of its own exchange."""
    nonces = iter(("first", "second"))
    overheard = []
    for attempt in range(2):
        serving = SaslServer(VERIFIER, lambda: next(nonces), plain_allowed=False)
        serving.choose(SCRAM)
        client = sasl_client(SaslCredentials(SCRAM, PEER_USER, "correct horse"), lambda: "c")
        challenge = serving.answer(client.first_message())
        if attempt == 0:
            final = client.answer(challenge)
            assert final is not None
            overheard.append(final)
            serving.answer(final)
            assert serving.done
        else:
            with pytest.raises(Refused):
                serving.answer(overheard[0])
            assert not serving.done


def test_the_secret_itself_is_not_asked_for_where_somebody_may_listen() -> None:
    assert server(plain_allowed=False).mechanisms == (SCRAM,)
    assert not server(plain_allowed=False).choose(PLAIN)


def test_without_a_secret_nobody_logs_in() -> None:
    serving = SaslServer(None, lambda: "n", plain_allowed=True)
    assert serving.mechanisms == ()
    assert not serving.choose(SCRAM)
    with pytest.raises(Refused):
        serving.answer(b"\0strandline-peer\0")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=strandline-peer",
        b"y,,n=strandline-peer,r=abc",
        b"p=tls-unique,,n=strandline-peer,r=abc",
        b"x" * 5_000,
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    serving = server()
    serving.choose(SCRAM)
    with pytest.raises(Refused):
        serving.answer(message)


@pytest.mark.parametrize(
    "final",
    [
        b"c=biws,r=cserver-nonce",
        b"c=biws,r=cserver-nonce,p=",
        b"c=biws,r=cserver-nonce,p=!!!!",
        b"c=biws,r=another,p=AAAA",
        b"c=eSws,r=cserver-nonce,p=AAAA",
    ],
)
def test_a_malformed_last_message_is_refused(final: bytes) -> None:
    serving = server()
    serving.choose(SCRAM)
    serving.answer(b"n,,n=strandline-peer,r=c")
    with pytest.raises(Refused):
        serving.answer(final)
    assert not serving.done
