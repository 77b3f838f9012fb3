"""Requests and responses as frames: the APIs, headers, bodies. Pure.

A frame here does not include the four bytes of its size, unless a function says so.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema

from kafka_client.frame_check import FrameError
from rlmm.wire import private_fields, schema

CLIENT_ID = b"strandline"
REQUEST_HEAD = struct.Struct(">hhi")
"""API key, version and correlation id, the start of every request header."""
SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")


class Api(IntEnum):
    """The APIs that the quorum's listener serves."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    SASL_AUTHENTICATE = 36
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82


VERSIONS: Mapping[int, tuple[int, int]] = {
    Api.PRODUCE: (3, 13),
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 11),
    Api.METADATA: (0, 13),
    Api.FIND_COORDINATOR: (0, 6),
    Api.SASL_HANDSHAKE: (1, 1),
    Api.API_VERSIONS: (0, 4),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.VOTE: (2, 2),
    Api.BEGIN_QUORUM_EPOCH: (1, 1),
    Api.END_QUORUM_EPOCH: (1, 1),
    Api.DESCRIBE_QUORUM: (0, 2),
    Api.ENVELOPE: (0, 0),
    Api.FETCH_SNAPSHOT: (1, 1),
    Api.DESCRIBE_CLUSTER: (0, 2),
    Api.ADD_RAFT_VOTER: (0, 1),
    Api.REMOVE_RAFT_VOTER: (0, 0),
    Api.UPDATE_RAFT_VOTER: (0, 0),
}
"""The lowest and highest version of each API, inclusive; APIs between peers have one version."""

_OWN_REQUESTS: Mapping[tuple[int, int], type[Any]] = {
    (52, 2): private_fields.VoteRequest,
    (1, 18): private_fields.FetchRequest,
    (0, 13): private_fields.ProduceRequest,
}
_OWN_RESPONSES: Mapping[tuple[int, int], type[Any]] = {
    (52, 2): private_fields.VoteResponse,
    (0, 13): private_fields.ProduceResponse,
}


class UnsupportedVersionError(FrameError):
    """A request with an API or version that is not supported."""

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} version {version} is not served here")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request; `body` in the form of `schema`."""

    api: Api
    version: int
    correlation_id: int
    body: schema.Values


@cache
def request_type(api_key: int, version: int) -> type[Any]:
    """The schema of a request, private fields included."""
    return _OWN_REQUESTS.get((api_key, version)) or load_request_schema(api_key, version)


@cache
def response_type(api_key: int, version: int) -> type[Any]:
    """The schema of a response, private fields included."""
    return _OWN_RESPONSES.get((api_key, version)) or load_response_schema(api_key, version)


def load_schemas() -> None:
    """Import and compile all schemas, which otherwise delays the first request of each kind."""
    for api, (low, high) in VERSIONS.items():
        for version in range(low, high + 1):
            schema.load(request_type(api, version))
            schema.load(response_type(api, version))


def decode_request(frame: bytes) -> Request:
    """Decode a request. FrameError: malformed. UnsupportedVersionError: not supported."""
    if len(frame) < REQUEST_HEAD.size:
        raise FrameError(f"{len(frame)} bytes are not a request")
    api_key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
    low, high = VERSIONS.get(api_key, (0, -1))
    if not low <= version <= high:
        raise UnsupportedVersionError(api_key, version, correlation_id)
    _, body = read_request(request_type(api_key, version), frame)
    return Request(Api(api_key), version, correlation_id, body)


def read_request(
    entity: type[Any],
    frame: bytes,
    elements_max: int = schema.ELEMENTS_MAX,
    *,
    exact: bool = True,
) -> tuple[str | None, schema.Values]:
    """The client id and the body. FrameError: malformed, or, if `exact`, followed by more bytes."""
    client_id, at = schema.read_client_id(frame, REQUEST_HEAD.size)
    if entity.__header_schema__.__version__ >= 2:
        at = schema.skip_tagged_fields(frame, at)
    body, end = schema.read(entity, frame, at, elements_max)
    if exact and end != len(frame):
        raise FrameError(f"{len(frame) - end} bytes after the end of the request")
    return client_id, body


def encode_request(api: Api, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """The frame of a request, including its size."""
    return write_request(request_type(api, version), correlation_id, body, CLIENT_ID)


def write_request(
    entity: type[Any], correlation_id: int, body: Mapping[str, Any], client_id: bytes
) -> bytes:
    """The frame of a request of this schema, including its size."""
    frame = bytearray(SIZE.size)
    frame += REQUEST_HEAD.pack(entity.__api_key__, entity.__version__, correlation_id)
    frame += struct.pack(">h", len(client_id)) + client_id
    if entity.__header_schema__.__version__ >= 2:
        frame.append(0)
    schema.write(entity, frame, body)
    SIZE.pack_into(frame, 0, len(frame) - SIZE.size)
    return bytes(frame)


def decode_response(api: Api, version: int, frame: bytes) -> schema.Values:
    """The body of a response whose correlation id was checked before. FrameError: malformed."""
    return read_response(response_type(api, version), frame)


def read_response(
    entity: type[Any], frame: bytes, elements_max: int = schema.ELEMENTS_MAX
) -> schema.Values:
    """The body of a response. FrameError: malformed."""
    at = SIZE.size
    if entity.__header_schema__.__version__ >= 1:
        at = schema.skip_tagged_fields(frame, at)
    body, end = schema.read(entity, frame, at, elements_max)
    if end != len(frame):
        raise FrameError(f"{len(frame) - end} bytes after the end of the response")
    return body


def encode_response(api: Api, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """The frame of a response, including its size."""
    return bytes(write_response(response_type(api, version), correlation_id, body))


def write_response(
    entity: type[Any], correlation_id: int, body: Mapping[str, Any], elsewhere_bytes: int = 0
) -> bytearray:
    """The frame of a response of this schema, including its size, which also counts the
    `elsewhere_bytes` of `schema.Elsewhere`.
    """
    frame = bytearray(_SIZE_AND_CORRELATION.size)
    if entity.__header_schema__.__version__ >= 1:
        frame.append(0)
    schema.write(entity, frame, body)
    size = len(frame) - SIZE.size + elsewhere_bytes
    _SIZE_AND_CORRELATION.pack_into(frame, 0, size, correlation_id)
    return frame
