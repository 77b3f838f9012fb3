"""A store that answers soundly but for one lie: in status, a header, a field, or the framing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from rsm_backends.store_config import StoreConfig

HTML = b"<html><head><title>Sign in</title></head><body><p>Welcome</p></body></html>"
REFUSAL = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
STATUSES = (
    100, 201, 202, 204, 206, 301, 304, 307, 400, 403, 404, 412, 416, 429, 500, 503,
)  # fmt: skip
VALUES = (
    None,
    "",
    "not what it should be",
    "9" * 40,
    "-1",
    "0",
    "true",
    "\u00e9\u4e16",
    "x" * 9_000,
)
ADDED = (
    ("Content-Encoding", "gzip"),
    ("Content-Range", "bytes 1-2/3"),
    ("Content-Range", "bytes 0-99999999999999999999/*"),
    ("Transfer-Encoding", "chunked"),
    ("Transfer-Encoding", "gzip, identity"),
    ("Location", "http://127.0.0.1:1/elsewhere"),
    ("x-amz-bucket-region", "not a region/../"),
    ("x-amz-checksum-crc32c", "AAAAAA=="),
    ("x-amz-checksum-crc32c", "no base64"),
    ("x-amz-checksum-crc32c", "AAAAAA==-3"),
    ("x-amz-delete-marker", "perhaps"),
    ("x-amz-missing-meta", "many"),
    ("Last-Modified", "yesterday"),
    ("Retry-After", "9" * 30),
    ("Content-Length", "3"),
    ("Connection", "Upgrade"),
)
_ELEMENT = re.compile(rb"<([A-Za-z]+)>([^<]*)</\1>")
_DOCTYPE = b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 1_000 + b'">]>'


@dataclass(frozen=True)
class Answer:
    """Before it is written down; Content-Length is as the body unless a header says otherwise."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    length: int | None = None

    def raw(self) -> bytes:
        """As bytes of a connection, which is closed behind them."""
        headers = list(self.headers)
        if not any(name in ("Content-Length", "Transfer-Encoding") for name, _ in headers):
            size = len(self.body) if self.length is None else self.length
            if size >= 0:
                headers.append(("Content-Length", str(size)))
        head = "".join(f"{name}: {text}\r\n" for name, text in headers)
        return f"HTTP/1.1 {self.status} Told\r\n{head}\r\n".encode() + self.body


def lies(sound: Answer) -> Iterator[tuple[str, bytes]]:
    """Each lie, by a name."""
    for status in STATUSES:
        for name, body in (("its body", sound.body), ("HTML", HTML), ("a refusal", REFUSAL)):
            yield f"status {status} with {name}", replace(sound, status=status, body=body).raw()
        elsewhere = (*sound.headers, ("Location", "http://127.0.0.1:1/x"))
        yield f"status {status} and a place", replace(sound, status=status, headers=elsewhere).raw()
    for at, (name, _) in enumerate(sound.headers):
        for value in VALUES:
            headers = list(sound.headers)
            headers[at : at + 1] = [] if value is None else [(name, value)]
            yield f"header {name}: {value!s:.20}", replace(sound, headers=tuple(headers)).raw()
    for added in ADDED:
        yield f"header {added} added", replace(sound, headers=(*sound.headers, added)).raw()
    for name, body in bodies(sound.body):
        yield f"body {name}", replace(sound, body=body).raw()
    yield from _framings(sound)


def bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Each lie in a body, by a name."""
    yield from (("empty", b""), ("HTML", HTML), ("a refusal", REFUSAL), ("spaces", b" " * 999))
    yield from (("zeros", bytes(500)), ("latin", b"\xff\xfe" + body), ("twice", body + body))
    yield from ((f"cut at {part}/4", body[: len(body) * part // 4]) for part in (1, 2, 3))
    yield from (("a comment", b"<!-- -->" + body), ("a DOCTYPE", _DOCTYPE + body))
    yield from (("long", body + b" " * 300_000), ("deep", b"<a>" * 5_000))
    for match in _ELEMENT.finditer(body):
        before, element, after = body[: match.start()], match[0], body[match.end() :]
        name = f"<{match[1].decode()}>"
        yield f"without {name}", before + after
        yield f"{name} twice", before + element * 2 + after
        yield f"{name} of elements", before + element.replace(match[2], b"<a>1</a>") + after
        for value in VALUES[1:]:
            told = str(value).encode()
            yield (
                f"{name} is {value!s:.20}",
                before + b"<%s>%s</%s>" % (match[1], told, match[1]) + after,
            )
    root = re.search(rb"<([A-Za-z]+)[ >]", body)
    if root is not None:
        yield "another root", body.replace(root[1], b"SomethingElse")


def _framings(sound: Answer) -> Iterator[tuple[str, bytes]]:
    yield "length too long", replace(sound, length=len(sound.body) + 9).raw()
    yield "no length", replace(sound, length=-1).raw()
    yield "no length, cut", replace(sound, length=-1, body=sound.body[: len(sound.body) // 2]).raw()
    chunked = (*sound.headers, ("Transfer-Encoding", "chunked"))
    pieces = b"%x\r\n%s\r\n" % (len(sound.body), sound.body) if sound.body else b""
    for name, body in (
        ("chunked", pieces + b"0\r\n\r\n"), ("chunked, no end", pieces),
        ("chunked, bad size", b"zz\r\n" + pieces), ("chunked, too long", b"fff\r\n" + sound.body),
    ):  # fmt: skip
        yield name, replace(sound, headers=chunked, body=body).raw()
    yield "nothing", b""
    yield "no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n"
    yield "half a head", sound.raw()[:30]
    yield "an endless head", b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000
    yield "a long line", b"HTTP/1.1 200 " + b"x" * 200_000


class LyingS3:
    """Answers every request with `told`."""

    told = b""
    connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for one request."""
        self.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *([0-9]+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(self.told)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # it has heard enough
        finally:
            writer.close()


@asynccontextmanager
async def lying_s3() -> AsyncIterator[tuple[LyingS3, StoreConfig]]:
    """It, and how to reach it."""
    liar = LyingS3()
    server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = StoreConfig(
        name="main", kind="s3", bucket="bkt", endpoint_url=f"http://127.0.0.1:{port}",
        addressing_style="path", access_key_id="k", secret_access_key="s", attempts_max=1,
        read_timeout_s=2.0, deadline_s=4.0,
    )  # fmt: skip
    try:
        yield liar, config
    finally:
        server.close()
