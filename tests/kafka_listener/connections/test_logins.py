"""Logins that pass through a replica: byte for byte, within bounds, as long as the twin lives."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kafka_listener.access import login
from kafka_listener.access.login import MECHANISMS
from kafka_listener.connections.listener import LOGIN_BYTES_MAX, ReadAccess, ReadLimits
from kafka_listener.connections.logins import WITH_A_CERTIFICATE
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import Head, decode_response, encode_request
from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values
from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.scripted_broker import ScriptedBroker, authenticated
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.ports import free_ports

ACCESS = ReadAccess(mechanisms=MECHANISMS)
SECRET = b"\0reader\0wonder land"
HANDSHAKE = Head(Api.SASL_HANDSHAKE, 1, 7)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


@pytest.fixture
def replica(broker: ScriptedBroker) -> Iterator[Listening]:
    with Listening(
        broker.address, TierInMemory(), ReadLimits(connections_max=3), access=ACCESS
    ) as r:
        yield r


class Client:
    """A client that sends frames as they are."""

    def __init__(self, replica: Listening) -> None:
        self._socket = socket.create_connection(("127.0.0.1", replica.port), timeout=30)

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> bytes:
        """The answer without its size; b"" if the connection ended instead."""
        try:
            self._socket.sendall(frame)
            return self.receive()
        except (ConnectionResetError, BrokenPipeError):
            return b""

    def receive(self) -> bytes:
        try:
            size = self._socket.recv(4, socket.MSG_WAITALL)
            return (
                self._socket.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL) if size else b""
            )
        except ConnectionResetError:
            return b""

    def ask(self, head: Head, body: Values) -> Values:
        return decode_response(head, self.send(encode_request(head, "a client", body)))

    def choose(self, mechanism: str) -> Values:
        return self.ask(HANDSHAKE, {"mechanism": mechanism})

    def log_in(self) -> None:
        self.ask(Head(Api.API_VERSIONS, 3, 1), {})
        assert self.choose("PLAIN")["error_code"] == 0
        assert (
            self.ask(Head(Api.SASL_AUTHENTICATE, 2, 8), {"auth_bytes": SECRET})["error_code"] == 0
        )

    def is_served(self) -> bool:
        return bool(self.send(encode_request(Head(Api.API_VERSIONS, 3, 9), "a client", {})))


Connect = Callable[[], Client]


@pytest.fixture
def connect(replica: Listening) -> Iterator[Connect]:
    """Makes clients, which end with the test."""
    with ExitStack() as clients:

        def connected() -> Client:
            client = Client(replica)
            clients.callback(client.close)
            return client

        yield connected


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_passes_byte_for_byte(
    connect: Connect, broker: ScriptedBroker, version: int
) -> None:
    broker.answers = [
        authenticated(b"r=\xff\x00,s=,i="), authenticated(b"v=\x80", lifetime_ms=60_000),
    ]  # fmt: skip
    client, head = connect(), Head(Api.SASL_AUTHENTICATE, version, 77)
    frames = [
        encode_request(HANDSHAKE, "a client", {"mechanism": "SCRAM-SHA-512"}),
        encode_request(head, "a client", {"auth_bytes": b"n,,\xfe\x00"}),
        encode_request(head, "", {"auth_bytes": bytes(range(256))}),
    ]
    answers = [client.send(frame) for frame in frames]
    assert broker.received == [frame[4:] for frame in frames]
    assert answers == broker.sent
    assert client.is_served()


def test_versions_before_a_login_name_the_login(connect: Connect) -> None:
    """And are not asked of the twin, which a broker takes once."""
    keys = connect().ask(Head(Api.API_VERSIONS, 3, 1), {})["api_keys"]
    assert {17, 36} <= {each["api_key"] for each in keys}


@pytest.mark.parametrize("mechanism", ["GSSAPI", "CRAM-MD5"])
def test_other_mechanisms_are_refused_with_those_that_are_taken(
    connect: Connect, broker: ScriptedBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = connect().choose(mechanism)
    assert answer == {
        "error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": list(MECHANISMS),
    }  # fmt: skip
    assert mechanism in caplog.text
    assert broker.received == []


@pytest.mark.parametrize(
    ("api", "version"),
    [(Api.METADATA, 12), (Api.FETCH, 12), (Api.HEARTBEAT, 4), (Api.SASL_AUTHENTICATE, 2)],
)
def test_without_a_login_nothing_is_answered(connect: Connect, api: Api, version: int) -> None:
    assert connect().send(encode_request(Head(api, version, 1), "a client", {})) == b""


def test_a_login_message_of_an_unknown_version_ends_the_client_with_a_line(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    client.choose("PLAIN")
    unknown = struct.pack(">ihhih", 10, Api.SASL_AUTHENTICATE, 9, 1, -1)
    assert client.send(unknown) == b""
    assert "a login in version 9, which is not supported" in caplog.text
    assert not [each for each in caplog.records if each.exc_info]


def test_a_failed_login_has_the_brokers_answer_and_an_end(
    connect: Connect, broker: ScriptedBroker
) -> None:
    broker.answers = [authenticated(error=58)]
    client = connect()
    client.choose("PLAIN")
    answer = client.ask(Head(Api.SASL_AUTHENTICATE, 2, 8), {"auth_bytes": SECRET})
    assert answer["error_code"] == 58
    assert client.receive() == b""


def test_secrets_are_in_no_log_and_no_repr(
    connect: Connect, broker: ScriptedBroker, replica: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    broker.answers = [authenticated(), authenticated(error=58)]
    client = connect()
    client.log_in()
    client.choose("PLAIN")
    client.send(encode_request(Head(Api.SASL_AUTHENTICATE, 2, 8), "c", {"auth_bytes": SECRET}))
    client.send(encode_request(Head(Api.SASL_AUTHENTICATE, 2, 8), "c", {"auth_bytes": SECRET}))
    shown = caplog.text + repr(replica.listener) + repr(replica.listener._connections)
    assert "wonder land" not in shown


def test_a_twin_that_its_broker_ends_ends_the_client(
    connect: Connect, broker: ScriptedBroker
) -> None:
    broker.answers = [authenticated()]
    client = connect()
    client.log_in()
    broker.drop()
    assert client.receive() == b""


def test_while_the_broker_is_away_who_is_in_stays_and_who_comes_is_closed(
    connect: Connect, broker: ScriptedBroker, replica: Listening
) -> None:
    broker.answers = [authenticated()] * 2
    client, late = connect(), connect()
    client.log_in()
    broker.stop()
    assert late.send(encode_request(HANDSHAKE, "late", {"mechanism": "PLAIN"})) == b""
    for _ in range(3):
        replica.run(
            lambda: replica.listener.logins.tick(tuple(replica.listener._connections.values()))
        )
    assert client.is_served()
    broker.again()
    assert client.receive() == b"", "it logs in again"
    again = connect()
    again.log_in()
    assert again.is_served()


def test_before_a_login_requests_are_small(connect: Connect) -> None:
    assert connect().send(struct.pack(">i", LOGIN_BYTES_MAX + 1)) == b""


def test_who_does_not_log_in_makes_room(connect: Connect, broker: ScriptedBroker) -> None:
    idle = [connect() for _ in range(3)]
    broker.answers = [authenticated()]
    client = connect()
    client.log_in()
    assert client.is_served()
    assert idle[0].receive() == b""


def test_a_further_login_makes_no_room(connect: Connect, broker: ScriptedBroker) -> None:
    broker.answers = [authenticated(), authenticated(b"r=1,s=,i="), authenticated(b"v=1")]
    client, further = connect(), Head(Api.SASL_AUTHENTICATE, 2, 9)
    client.log_in()
    assert client.choose("SCRAM-SHA-256")["error_code"] == 0
    assert client.ask(further, {"auth_bytes": b"n,,n=reader,r=1"})["error_code"] == 0
    idle = [connect() for _ in range(3)]
    assert idle[0].receive() == b""
    assert client.ask(further, {"auth_bytes": b"c=biws,r=1,p="})["error_code"] == 0
    assert client.is_served()


def test_who_does_not_log_in_is_ended(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_DEADLINE_S", 0.5)
    assert connect().receive() == b""


def test_where_nobody_logs_in_a_login_is_refused_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    access = ReadAccess(why_not=WITH_A_CERTIFICATE)
    with Listening(nobody, TierInMemory(), access=access) as replica:
        client = Client(replica)
        answer = client.choose("PLAIN")
        client.close()
        assert answer == {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": []}
        assert "identifies clients by certificate" in caplog.text
