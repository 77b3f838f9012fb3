"""Encodes requests that one node forwards to a different one, and the answers. Pure.

The caller's token never leaves the node that received it: that node vouches for the caller's name
and role instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from api.http.tokens import NAME, Principal, Role
from kafka_formats.host_names import http_address
from kafka_formats.primitives import Reader, Writer
from rlmm.rows.nodes import RegisteredNode

VERSION = 0
HEADERS = (b"accept", b"content-type", b"strandline-min-metadata-offset")
"""The headers that are forwarded with a request; no others are."""
REPLY_HEADERS = (b"allow", b"content-type", b"retry-after")
UNREADABLE = "UNREADABLE"
"""The reason in the refusal of a request that can't be decoded."""
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
NOBODY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
_OF_A_QUERY = "%!$&'()*+,;=:@/?~[]"
_FIELD_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_WITHOUT_BODY = (204, 304)

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request for node `to_node` of a cluster, which is named because a different cluster may
    have the same secret, node ids and addresses. `path` and `query` are encoded as in a URL.
    """

    cluster_id: str
    to_node: int
    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Vouched:
    """The caller, as the node that received the request vouches for it."""

    principal: Principal
    by_node: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a forwarded request; it reflects all records up to `metadata_offset`."""

    status: int
    metadata_offset: int
    headers: Headers
    body: bytes


def encode_request(request: ForwardedRequest) -> bytes:
    """The bytes that `decode_request` reads."""
    writer = Writer()
    writer.int16(VERSION)
    writer.string(request.cluster_id)
    writer.int32(request.to_node)
    writer.string(request.method)
    writer.string(request.path)
    writer.bytes_(request.query)
    _write_headers(writer, request.headers)
    writer.bytes_(request.body)
    writer.tagged_fields(())
    return writer.done()


def decode_request(data: bytes) -> ForwardedRequest:
    """Decode a request that a node forwarded. CorruptData: malformed."""
    reader = _reader(data, "a forwarded request")
    request = ForwardedRequest(
        reader.string(), reader.int32(), reader.string(), reader.string(), reader.bytes_(),
        _read_headers(reader, HEADERS), reader.bytes_(),
    )  # fmt: skip
    _end(reader)
    if request.method not in METHODS:
        raise reader.corrupt(f"{request.method[:20]!r} is not a method that is forwarded")
    path = request.path
    if not (path.isascii() and path.startswith("/") and may_be_forwarded(unquote(path))):
        raise reader.corrupt(f"{path[:100]!r} is not a path that is forwarded")
    if not request.query.isascii():
        raise reader.corrupt("its query is not encoded as in a URL")
    return request


def encode_vouched(vouched: Vouched) -> bytes:
    """The bytes that `decode_vouched` reads."""
    writer = Writer()
    writer.int16(VERSION)
    writer.int32(vouched.by_node)
    writer.string(vouched.principal.name)
    writer.int8(vouched.principal.role)
    writer.tagged_fields(())
    return writer.done()


def decode_vouched(data: bytes) -> Vouched:
    """Decode the caller; its name says which node forwarded the request. CorruptData: malformed."""
    reader = _reader(data, "the caller of a forwarded request")
    by_node, name, number = reader.int32(), reader.string(), reader.int8()
    _end(reader)
    if NAME.fullmatch(name) is None:  # it is written to the log
        raise reader.corrupt(f"{name[:100]!r} is not a caller's name")
    try:
        role = Role(number)
    except ValueError:
        raise reader.corrupt(f"{number} is not a role") from None
    return Vouched(Principal(f"{name} by way of node {by_node}", role), by_node)


def encode_reply(reply: Reply) -> bytes:
    """The bytes that `decode_reply` reads."""
    writer = Writer()
    writer.int16(VERSION)
    writer.int16(reply.status)
    writer.int64(reply.metadata_offset)
    _write_headers(writer, reply.headers)
    writer.bytes_(reply.body)
    writer.tagged_fields(())
    return writer.done()


def decode_reply(data: bytes) -> Reply:
    """Decode a node's answer. CorruptData: malformed."""
    reader = _reader(data, "the answer to a forwarded request")
    reply = Reply(
        reader.int16(), reader.int64(), _read_headers(reader, REPLY_HEADERS), reader.bytes_()
    )
    _end(reader)
    if not 200 <= reply.status < 600 or reply.status in _WITHOUT_BODY:
        raise reader.corrupt(f"{reply.status} is not the status of a complete answer")
    return reply


def may_be_forwarded(path: str) -> bool:
    """True if a request for this path may be forwarded. The path is decoded, as the routes read it.
    Health, metrics, and the calls of a broker's plug-in are answered by the node that gets them.
    """
    return path.startswith("/v1/") and not path.startswith("/v1/broker/")


def quorum_address(node: RegisteredNode) -> tuple[str, int] | None:
    """The (host, port) at which the other nodes reach this node's quorum listener; None: it
    registered no usable address.
    """
    try:
        parts = urlsplit(f"//{node.facts.quorum or ''}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host and port and host not in NOBODY else None


def location(node: RegisteredNode, scheme: str, path: str, query: bytes) -> str | None:
    """The URL of the same request, which came by `scheme`, at that node. None: the node registered
    no address of its own, or one without TLS, which would expose a token that came by TLS.
    """
    parts = http_address(node.facts.http or "")
    if parts is None or parts.hostname in NOBODY or (scheme, parts.scheme) == ("https", "http"):
        return None
    target = f"{path}?{quote(query, safe=_OF_A_QUERY)}" if query else path
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{target}"


def picked(headers: Headers, names: tuple[bytes, ...]) -> Headers:
    """The headers of these names."""
    return tuple((name, value) for name, value in headers if name in names)


def _reader(data: bytes, source: str) -> Reader:
    reader = Reader(data, source)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"it has version {version}, and this release reads version {VERSION}")
    return reader


def _end(reader: Reader) -> None:
    reader.tagged_fields()  # fields of a later release
    reader.expect_end()


def _write_headers(writer: Writer, headers: Headers) -> None:
    writer.array_length(len(headers))
    for name, value in headers:
        writer.bytes_(name)
        writer.bytes_(value)


def _read_headers(reader: Reader, names: tuple[bytes, ...]) -> Headers:
    found = tuple((reader.bytes_(), reader.bytes_()) for _ in range(reader.array_length()))
    headers = picked(found, names)
    for name, value in headers:
        if _FIELD_VALUE.fullmatch(value) is None:  # it could end this header and begin a new one
            raise reader.corrupt(f"{value[:100]!r} is not a value for the header {name.decode()}")
    return headers
