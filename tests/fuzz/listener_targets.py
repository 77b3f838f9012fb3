"""What consumers and strangers send to a read replica, and brokers answer it."""

from __future__ import annotations

from base64 import b64encode
from functools import cache

from kafka_client.frame_check import FrameError
from kafka_listener.access import login as logins
from kafka_listener.access import rights
from kafka_listener.access.login import MECHANISMS, Terms
from kafka_listener.access.rights import ReadableTopics
from kafka_listener.access.users import NAME_CHARACTERS_MAX, parse_user
from kafka_listener.protocol import codec, fetch, node_rewriting, offsets
from kafka_listener.protocol.apis import SERVED, Api, Treatment, served
from kafka_listener.protocol.codec import Head
from kafka_listener.protocol.refusals import produce_refused
from kafka_listener.virtual_nodes import Replica, VirtualNodes
from rlmm.wire.frames import SIZE
from tests.fuzz.engine import Target

_ANSWERED = (Treatment.READ, Treatment.LOGIN)
_LOGIN = logins.Login(0.0, logins.Phase.EXCHANGE, "SCRAM-SHA-512")
_NODES = VirtualNodes.alone(Replica(100, "replica", 19_092))


@cache
def _read() -> list[Head]:
    """Every version of what is decoded."""
    codec.load_schemas()
    return [
        Head(api, version, 7)
        for api, how in SERVED.items()
        if how.treatment is not Treatment.RELAYED
        for version in range(how.low, how.high + 1)
    ]


def _requests() -> list[bytes]:
    partition = {"partition": 1, "partition_index": 1, "index": 1, "fetch_offset": 5}
    topic = {"name": "orders", "topic": "orders", "topic_id": bytes(range(16))}
    topic |= {"partitions": [partition], "partition_data": [partition]}
    body = {"topics": [topic], "topic_data": [topic], "coordinator_keys": ["a group"]}
    return [codec.encode_request(head, "a client", body)[SIZE.size :] for head in _read()]


def _request(data: bytes) -> None:
    head = codec.head_of(data)
    how = served(head.api_key, head.version)
    if how is None or how.treatment is Treatment.RELAYED:
        return
    body = codec.decode_request(data).body
    match head.api_key:
        case Api.FETCH:
            wanted = fetch.wanted_in(body)
            fetch.for_broker(body, wanted, bytes_max=1, at_once=True)
            answers = {each.where: fetch.error_answer(each, 78) for each in wanted}
            codec.encode_response(head, fetch.answer_of(body, answers))
        case Api.LIST_OFFSETS:
            offsets.without(body, offsets.asked_in(body)[:1])
            codec.encode_response(head, offsets.merged(body, {}, {}))
        case Api.OFFSET_FOR_LEADER_EPOCH:
            offsets.epochs_in(body)
            codec.encode_response(head, offsets.no_epoch_ends(body, {}))
        case Api.SASL_HANDSHAKE:
            logins.handshake(logins.Login(0.0), body["mechanism"], Terms(is_private=False), 0.0)
        case Api.PRODUCE:
            codec.encode_response(head, produce_refused(body))


def _answers() -> list[bytes]:
    partition = {
        "partition_index": 1, "partition": 1, "leader_id": 7, "replica_nodes": [7],
        "isr_nodes": [7], "records": b"records",
    }  # fmt: skip
    topic = {"name": "orders", "topic": "orders", "topic_id": bytes(range(16))}
    topic |= {"partitions": [partition]}
    broker = {"node_id": 7, "broker_id": 7, "host": "broker", "port": 9_092}
    body = {
        "topics": [topic], "responses": [topic], "brokers": [broker], "coordinators": [broker],
        "api_keys": [{"api_key": 1, "min_version": 0, "max_version": 17}], "controller_id": 7,
        **broker,
    }  # fmt: skip
    return [
        bytes([head.api_key, head.version]) + codec.encode_response(head, body)[SIZE.size :]
        for head in _read()
        if SERVED[head.api_key].treatment in _ANSWERED
    ]


def _answer(data: bytes) -> None:
    """The first two bytes are the API and the version that was asked for."""
    if len(data) < 2:
        return
    api_key, version = data[:2]
    how = served(api_key, version)
    if how is None or how.treatment not in _ANSWERED:
        return
    head = Head(api_key, version, 7)
    body = codec.decode_response(head, data[2:])
    match api_key:
        case Api.METADATA:
            node_rewriting.topics_in(body)
            node_rewriting.brokers_in(body)
            rights.rights_in(body)
            rights.leave_out(body, ReadableTopics(("a*",)).allows, {"topics": [{"name": "orders"}]})
            node_rewriting.rewrite_metadata(body, _NODES)
        case Api.FIND_COORDINATOR:
            node_rewriting.rewrite_coordinators(body, _NODES)
        case Api.DESCRIBE_CLUSTER:
            node_rewriting.rewrite_cluster(body, _NODES)
        case Api.API_VERSIONS:
            node_rewriting.rewrite_versions(body, logs_in=bool(version % 2))
        case Api.LIST_OFFSETS:
            offsets.offsets_in(body)
        case Api.OFFSET_FOR_LEADER_EPOCH:
            offsets.with_epoch_ends(body, {})
        case Api.SASL_HANDSHAKE:
            logins.handshake_answered(_LOGIN, body["error_code"], 0.0)
        case Api.SASL_AUTHENTICATE:
            lifetime_ms = body.get("session_lifetime", 0)
            logins.answered(_LOGIN, body["error_code"], body["auth_bytes"], lifetime_ms, 0.0)
        case Api.FETCH:
            wanted = fetch.Wanted((0, 0), "orders", 1, 0, 0)
            fetch.answers_in(body, [wanted])
    if api_key != Api.FETCH:
        codec.encode_response(head, body)


def _messages() -> list[bytes]:
    token = b"e30." + b64encode(b'{"sub": "alice", "exp": 1760000000}') + b".c2ln"
    return [
        b"\0\0alice\0secret",
        b"\x01n,,n=alice=2Cbob,r=nonce",
        b"\x03n,,\x01auth=Bearer " + token + b"\x01\x01",
    ]


def _message(data: bytes) -> None:
    """The first byte is the mechanism."""
    if data:
        found = parse_user(MECHANISMS[data[0] % len(MECHANISMS)], data[1:])
        assert len(found) <= NAME_CHARACTERS_MAX


def listener_targets() -> list[Target]:
    """A malformed frame is a FrameError; the connection that sent it ends."""
    home = "kafka_listener.protocol.codec"
    return [
        Target(
            "consumer's request", (f"{home}.decode_request",), _request, _requests, (FrameError,),
            factor=400,
        ),
        Target(
            "broker's answer to a replica", (f"{home}.decode_response",), _answer, _answers,
            (FrameError,), factor=400,
        ),
        Target(
            "user's name in a login", ("kafka_listener.access.users.parse_user",), _message,
            _messages, (), factor=400,
        ),
    ]  # fmt: skip
