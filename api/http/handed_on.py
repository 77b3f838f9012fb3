"""Requests that one node hands on to another, and the answers, as bytes. Pure.

The caller's token never leaves the node that was asked: it vouches for the name and role instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from api.http.tokens import Principal, Role
from kafka_formats.host_names import http_address
from kafka_formats.primitives import Reader, Writer
from rlmm.rows.nodes import RegisteredNode

VERSION = 0
HEADERS = (b"accept", b"content-type", b"strandline-min-metadata-offset")
"""The headers that go with a request; no other one does."""
REPLY_HEADERS = (b"allow", b"content-type", b"retry-after")
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
NOBODY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
_OF_A_QUERY = "%!$&'()*+,;=:@/?~[]"

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class HandedOn:
    """A request for node `to_node`. `path` and `query` are encoded as in an address."""

    to_node: int
    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Vouched:
    """The caller, by the word of the node that it asked."""

    principal: Principal
    by_node: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request that was handed on; it holds all up to `metadata_offset`."""

    status: int
    metadata_offset: int
    headers: Headers
    body: bytes


def encode_request(request: HandedOn) -> bytes:
    """The bytes that `decode_request` reads."""
    writer = Writer()
    writer.int16(VERSION)
    writer.int32(request.to_node)
    writer.string(request.method)
    writer.string(request.path)
    writer.bytes_(request.query)
    _write_headers(writer, request.headers)
    writer.bytes_(request.body)
    writer.tagged_fields(())
    return writer.done()


def decode_request(data: bytes) -> HandedOn:
    """CorruptData: not a request that a node hands on."""
    reader = _reader(data, "a request handed on")
    request = HandedOn(
        reader.int32(), reader.string(), reader.string(), reader.bytes_(),
        _read_headers(reader, HEADERS), reader.bytes_(),
    )  # fmt: skip
    _end(reader)
    if request.method not in METHODS:
        raise reader.corrupt(f"{request.method[:20]!r} is no method that is handed on")
    if not (request.path.isascii() and may_be_handed_on(request.path)):
        raise reader.corrupt(f"{request.path[:100]!r} is no path that is handed on")
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
    """The caller; its name says by way of which node it came. CorruptData: not a caller."""
    reader = _reader(data, "the caller of a request handed on")
    by_node, name, number = reader.int32(), reader.string(), reader.int8()
    _end(reader)
    try:
        role = Role(number)
    except ValueError:
        raise reader.corrupt(f"there is no role {number}") from None
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
    """CorruptData: not an answer of a node."""
    reader = _reader(data, "the answer to a request handed on")
    reply = Reply(
        reader.int16(), reader.int64(), _read_headers(reader, REPLY_HEADERS), reader.bytes_()
    )
    _end(reader)
    if not 200 <= reply.status < 600:
        raise reader.corrupt(f"{reply.status} is no status of an answer")
    return reply


def may_be_handed_on(path: str) -> bool:
    """False for health, metrics, and the calls of a broker's plug-in, which are its own node's."""
    return path.startswith("/v1/") and not path.startswith("/v1/broker/")


def quorum_address(node: RegisteredNode) -> tuple[str, int] | None:
    """The (host, port) by which the other nodes reach this one; None: none that leads there."""
    try:
        parts = urlsplit(f"//{node.facts.quorum or ''}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host and port and host not in NOBODY else None


def location(node: RegisteredNode, path: str, query: bytes) -> str | None:
    """The same request's address at the node; None: it registered no address of its own."""
    parts = http_address(node.facts.http or "")
    if parts is None or parts.hostname in NOBODY:
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
        raise reader.corrupt(f"version {version}, known is {VERSION}")
    return reader


def _end(reader: Reader) -> None:
    reader.tagged_fields()  # of a later release
    reader.expect_end()


def _write_headers(writer: Writer, headers: Headers) -> None:
    writer.array_length(len(headers))
    for name, value in headers:
        writer.bytes_(name)
        writer.bytes_(value)


def _read_headers(reader: Reader, names: tuple[bytes, ...]) -> Headers:
    found = tuple((reader.bytes_(), reader.bytes_()) for _ in range(reader.array_length()))
    return picked(found, names)
