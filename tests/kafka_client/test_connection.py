"""The connection against a scripted server that hangs, lies, and speaks nonsense."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.api_versions.v2 import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v8 import MetadataRequest, MetadataResponse
from kio.schema.produce.v9 import ProduceRequest, ProduceResponse
from kio.schema.sasl_authenticate.v1 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse
from kio.static.primitive import i16

from kafka_client.connection import Connection, Endpoint
from kafka_client.sasl import SaslCredentials
from kafka_formats.errors import CorruptData, InvalidRequest, Refused, RetryLater
from tests.kafka_client.fake_broker import (
    NO_THROTTLE,
    HangUp,
    RawFrame,
    Reply,
    Silence,
    encode_reply,
    fake_broker,
)

METADATA = MetadataResponse(
    throttle_time=NO_THROTTLE, brokers=(), cluster_id="the-cluster", topics=()
)
REQUEST = MetadataRequest(
    topics=(),
    allow_auto_topic_creation=False,
    include_cluster_authorized_operations=False,
    include_topic_authorized_operations=False,
)
PLAIN = SaslCredentials("PLAIN", "alice", "secret")


async def connect(endpoint: Endpoint) -> Connection:
    return await Connection.open(endpoint, new_nonce=lambda: "nonce")


async def ask(connection: Connection) -> MetadataResponse:
    return await connection.ask(REQUEST, MetadataResponse)


async def test_questions_get_their_answers_in_turn() -> None:
    async with fake_broker({MetadataRequest: lambda _: METADATA}) as broker:
        connection = await connect(broker.endpoint())
        answers = await asyncio.gather(*(ask(connection) for _ in range(5)))
        await connection.close()
    assert answers == [METADATA] * 5
    assert [type(request) for request in broker.asked[1:]] == [MetadataRequest] * 5
    assert broker.client_ids == {"strandline"}


async def test_an_api_the_server_does_not_have_is_not_sent() -> None:
    async with fake_broker() as broker:
        connection = await connect(broker.endpoint())
        produce = ProduceRequest(
            transactional_id=None, acks=i16(-1), timeout=NO_THROTTLE, topic_data=()
        )
        with pytest.raises(InvalidRequest, match="ProduceRequest version 9"):
            await connection.ask(produce, ProduceResponse)
        assert not connection.closed
        await connection.close()
    assert len(broker.asked) == 1


async def test_nobody_at_the_port_is_retry_later() -> None:
    async with fake_broker() as broker:
        port = broker.port
    with pytest.raises(RetryLater, match=f"cannot connect to 127.0.0.1:{port}"):
        await connect(Endpoint("127.0.0.1", port))


async def test_a_name_that_no_resolver_takes_is_retry_later() -> None:
    with pytest.raises(RetryLater, match=r"cannot connect to a\.\.b:9092"):
        await connect(Endpoint("a..b", 9092))


@pytest.mark.parametrize("port", [-1, 65_536, 2**31 - 1])
async def test_a_port_that_no_socket_takes_is_told_like_a_server_that_is_not_there(
    port: int,
) -> None:
    """Brokers tell their ports in 32 bits, and addresses that they tell are connected to."""
    with pytest.raises(RetryLater, match="cannot connect to"):
        await connect(Endpoint("127.0.0.1", port))


async def test_a_server_that_never_answers_costs_one_deadline() -> None:
    async with fake_broker({ApiVersionsRequest: lambda _: Silence()}) as broker:
        with pytest.raises(RetryLater, match=r"did not accept a connection within 0\.05 s"):
            await connect(broker.endpoint(connect_deadline_s=0.05))
    async with fake_broker({MetadataRequest: lambda _: Silence()}) as broker:
        connection = await connect(broker.endpoint(request_deadline_s=0.05))
        with pytest.raises(RetryLater, match=r"did not answer MetadataRequest within 0\.05 s"):
            await ask(connection)
        assert connection.closed
        with pytest.raises(RetryLater, match="is closed"):
            await ask(connection)


async def test_a_cancelled_question_closes_the_connection() -> None:
    async with fake_broker({MetadataRequest: lambda _: Silence()}) as broker:
        connection = await connect(broker.endpoint())
        question = asyncio.create_task(ask(connection))
        while len(broker.asked) < 2:
            await asyncio.sleep(0)
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        assert connection.closed


async def test_a_lost_connection_is_retry_later() -> None:
    async with fake_broker({MetadataRequest: lambda _: HangUp()}) as broker:
        connection = await connect(broker.endpoint())
        with pytest.raises(RetryLater, match="closed the connection"):
            await ask(connection)
        assert connection.closed


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack(">i", 1 << 30), "an answer of 1073741824 bytes is announced"),
        (struct.pack(">i", -5), "an answer of -5 bytes is announced"),
        (struct.pack(">ii", 4, 99), "the answer to request 1 names request 99"),
        (struct.pack(">i", 5) + struct.pack(">ib", 1, 0), "malformed MetadataResponse"),
    ],
)
async def test_nonsense_is_corrupt_data_and_closes(frame: bytes, why: str) -> None:
    async with fake_broker({MetadataRequest: lambda _: RawFrame(frame + bytes(200))}) as broker:
        connection = await connect(broker.endpoint())
        with pytest.raises(CorruptData, match=why) as caught:
            await ask(connection)
        assert caught.value.source == f"127.0.0.1:{broker.port}"
        assert connection.closed


async def test_bytes_behind_an_answer_are_corrupt_data() -> None:
    whole = encode_reply(METADATA, 1)[4:] + b"\0"
    frame = RawFrame(struct.pack(">i", len(whole)) + whole)
    async with fake_broker({MetadataRequest: lambda _: frame}) as broker:
        connection = await connect(broker.endpoint())
        with pytest.raises(CorruptData, match="1 bytes after its end"):
            await ask(connection)


def sasl_script(
    error: ErrorCode, message: str | None = None
) -> dict[type[Any], Callable[[Any], Reply]]:
    def handshake(request: SaslHandshakeRequest) -> Reply:
        known = request.mechanism == "PLAIN"
        return SaslHandshakeResponse(
            error_code=ErrorCode.none if known else ErrorCode.unsupported_sasl_mechanism,
            mechanisms=("PLAIN", "GSSAPI"),
        )

    def authenticate(request: SaslAuthenticateRequest) -> Reply:
        return SaslAuthenticateResponse(error_code=error, error_message=message, auth_bytes=b"")

    return {SaslHandshakeRequest: handshake, SaslAuthenticateRequest: authenticate}


async def test_plain_credentials_are_sent_after_the_handshake() -> None:
    async with fake_broker(sasl_script(ErrorCode.none)) as broker:
        connection = await connect(broker.endpoint(sasl=PLAIN))
        await connection.close()
    assert broker.asked[1] == SaslHandshakeRequest(mechanism="PLAIN")
    assert broker.asked[2] == SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")


async def test_credentials_that_are_not_taken_are_refused_with_the_brokers_words() -> None:
    script = sasl_script(ErrorCode.sasl_authentication_failed, "who is alice?")
    async with fake_broker(script) as broker:
        with pytest.raises(Refused, match=r"refuses PLAIN as 'alice': 'who is alice\?"):
            await connect(broker.endpoint(sasl=PLAIN))


async def test_a_mechanism_the_broker_lacks_is_refused_with_those_it_has() -> None:
    async with fake_broker(sasl_script(ErrorCode.none)) as broker:
        scram = SaslCredentials("SCRAM-SHA-512", "alice", "secret")
        with pytest.raises(Refused, match="it offers: 'PLAIN, GSSAPI'"):
            await connect(broker.endpoint(sasl=scram))


async def test_a_broker_that_never_ends_the_login_is_refused() -> None:
    first = b"r=nonceXYZ,s=c2FsdA==,i=4096"
    script = sasl_script(ErrorCode.none)
    script[SaslHandshakeRequest] = lambda _: SaslHandshakeResponse(error_code=ErrorCode.none)
    script[SaslAuthenticateRequest] = lambda _: SaslAuthenticateResponse(
        error_code=ErrorCode.none, error_message=None, auth_bytes=first
    )
    async with fake_broker(script) as broker:
        scram = SaslCredentials("SCRAM-SHA-256", "alice", "secret")
        with pytest.raises(Refused, match="does not prove that it knows the password"):
            await connect(broker.endpoint(sasl=scram))
