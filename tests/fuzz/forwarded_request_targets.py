"""Rows of the table: requests that nodes hand on to each other, and the answers."""

from __future__ import annotations

from api.http.forwarded_requests import (
    ForwardedRequest,
    Reply,
    Vouched,
    decode_reply,
    decode_request,
    decode_vouched,
    encode_reply,
    encode_request,
    encode_vouched,
)
from api.http.merging import decode_places, encode_places
from api.http.tokens import Principal, Role
from kafka_formats.errors import InvalidRequest
from tests.fuzz.engine import Target
from tests.fuzz.format_targets import text_of

_TYPE = (b"content-type", b"application/json")
_TRANSFER = ForwardedRequest(
    "a cluster", 2, "POST", "/v1/quorum/transfer", b"a=b", (_TYPE,), b'{"node_id": null}'
)


def forwarded_request_targets() -> list[Target]:
    """All rows of this module."""
    return [
        Target(
            "handed on: request",
            ("api.http.forwarded_requests.decode_request",),
            decode_request,
            lambda: [encode_request(_TRANSFER)],
            factor=400,  # an empty header of two bytes becomes a tuple
        ),
        Target(
            "handed on: caller",
            ("api.http.forwarded_requests.decode_vouched",),
            decode_vouched,
            lambda: [encode_vouched(Vouched(Principal("boss", Role.ADMIN), 1))],
        ),
        Target(
            "handed on: reply",
            ("api.http.forwarded_requests.decode_reply",),
            decode_reply,
            lambda: [encode_reply(Reply(200, 77, (_TYPE,), b"{}"))],
            factor=400,
        ),
        Target(
            "places in the audits of all nodes",
            ("api.http.merging.decode_places",),
            lambda data: decode_places(text_of(data)),
            lambda: [encode_places({1: "", 2: "AQIDBA", 3: "x"}).encode()],
            (InvalidRequest,),
        ),
    ]
