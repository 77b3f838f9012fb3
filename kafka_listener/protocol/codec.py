"""Decodes and encodes frames of clients and brokers by kio's schemas. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from kio import index

from kafka_client.frame_check import FrameError
from kafka_listener.protocol.apis import SERVED, Treatment
from rlmm.wire import frames, schema
from rlmm.wire.schema import Elsewhere, Values

# kio looks up a module's name at each call, five times for a Fetch.
load_request_schema = cache(index.load_request_schema)
load_response_schema = cache(index.load_response_schema)

CLIENT_ELEMENTS_MAX = 10_000
"""The most elements of one list in a client's request: partitions, above all."""
BROKER_ELEMENTS_MAX = 100_000
"""The most elements of one list in a broker's answer."""

Pieces = tuple["bytes | Elsewhere", ...]
"""A frame with its size in front, split where bytes come from a worker."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of every request."""

    api_key: int
    version: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A decoded request; `body` as in `rlmm.wire.schema`, `frame` unchanged, without its size."""

    head: Head
    client_id: str | None
    body: Values
    frame: bytes = b""


def partitions_in(body: Mapping[str, Any]) -> int:
    """The number of partitions that a message names. A topic without partitions, and a group whose
    coordinator is requested, count as one.
    """
    keys = body.get("coordinator_keys") or ()
    return len(keys) + sum(
        len(topic.get("partitions") or ()) or 1 for topic in body.get("topics") or ()
    )


def head_of(frame: bytes) -> Head:
    """The head of a client's request. FrameError: the frame is too short."""
    if len(frame) < frames.REQUEST_HEAD.size:
        raise FrameError(f"a frame of {len(frame)} bytes is too short for a request")
    return Head(*frames.REQUEST_HEAD.unpack_from(frame))


def decode_request(frame: bytes) -> ClientRequest:
    """Decode a request of a supported version. FrameError: malformed.

    Bytes after its end are ignored, as in Kafka's brokers: librdkafka 2.16 sends three of them when
    it asks for all topics.
    """
    head = head_of(frame)
    entity = load_request_schema(head.api_key, head.version)
    client_id, body = frames.read_request(entity, frame, CLIENT_ELEMENTS_MAX, exact=False)
    return ClientRequest(head, client_id, body, frame)


def encode_request(head: Head, client_id: str | None, body: Mapping[str, Any]) -> bytes:
    """A request for a broker, with its size in front."""
    entity = load_request_schema(head.api_key, head.version)
    return frames.write_request(entity, head.correlation_id, body, (client_id or "").encode())


def sized(frame: bytes) -> bytes:
    """An unchanged frame, with its size in front."""
    return frames.SIZE.pack(len(frame)) + frame


def decode_response(head: Head, frame: bytes) -> Values:
    """The body of a broker's answer, without its size. FrameError: malformed."""
    entity = load_response_schema(head.api_key, head.version)
    return frames.read_response(entity, frame, BROKER_ELEMENTS_MAX)


def encode_response(head: Head, body: Mapping[str, Any]) -> bytes:
    """An answer for a client, with its size in front."""
    entity = load_response_schema(head.api_key, head.version)
    return bytes(frames.write_response(entity, head.correlation_id, body))


def encode_around(head: Head, body: Mapping[str, Any], elsewhere: tuple[Elsewhere, ...]) -> Pieces:
    """A response split around those bytes, in their order."""
    entity = load_response_schema(head.api_key, head.version)
    missing = sum(each.size_bytes for each in elsewhere)
    written = frames.write_response(entity, head.correlation_id, body, missing)
    cuts = (0, *(each.at for each in elsewhere), len(written))
    pieces: list[bytes | Elsewhere] = []
    for number, (start, end) in enumerate(pairwise(cuts)):
        pieces.append(bytes(written[start:end]))
        pieces.extend(elsewhere[number : number + 1])
    return tuple(pieces)


@cache
def load_schemas() -> None:
    """Compile every schema, which takes a while: otherwise the first requests would do it on the
    event loop.
    """
    for api, served in SERVED.items():
        if served.treatment is Treatment.RELAYED:
            continue
        for version in range(served.low, served.high + 1):
            for entity in (load_request_schema(api, version), load_response_schema(api, version)):
                schema.load(entity)
