"""The server over real connections: deadlines, bounds, TLS, an orderly end."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api.app import create_app
from api.http.api_limits import ApiLimits
from api.server import ApiServer, TlsFiles, serve
from kafka_formats.errors import InvalidRequest
from tests.api.fakes import BASE, FakeNode, FakeStream, make_node, segment_uuid

QUICK = ApiLimits(
    header_deadline_s=0.05,
    idle_deadline_s=0.05,
    chunk_deadline_s=0.05,
    shutdown_deadline_s=1,
    connections_max=2,
    header_bytes_max=4_000,
)
NOT_ENCRYPTED = serialization.NoEncryption()
PATIENT = ApiLimits(shutdown_deadline_s=1, header_bytes_max=4_000)


@asynccontextmanager
async def running(
    limits: ApiLimits = PATIENT, tls: TlsFiles | None = None
) -> AsyncIterator[tuple[FakeNode, ApiServer]]:
    """A server on a free port of this machine."""
    node = make_node(limits=limits)
    server = await serve(node.app(), "127.0.0.1", 0, tls=tls, limits=limits)
    try:
        yield node, server
    finally:
        await server.close()


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything until the other end closes; waits for that."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def connection(server: ApiServer) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def problem_in(answer: bytes) -> tuple[int, str]:
    """(status, kind) of an answer whose body is a problem document."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)["kind"]


def get(path: str = "/healthz") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_it_answers_and_ends() -> None:
    node = make_node()
    server = await serve(create_app(node.context), "127.0.0.1", 0)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            answer = await client.get("/v1/cluster")
            assert answer.status_code == 200
            assert "server" not in answer.headers
            assert (await client.get("/v1/nothing")).json()["kind"] == "no_such_route"
        port = server.port
    finally:
        await server.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_forwarded_address_is_not_believed() -> None:
    async with (
        running() as (_, server),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
        answer = await client.get("/v1/cluster", headers={"X-Forwarded-For": "127.0.0.1"})
        assert answer.status_code == 401


async def test_headers_that_do_not_arrive_end_the_connection() -> None:
    async with running(QUICK) as (_, server), connection(server) as raw:
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert problem_in(await raw.rest()) == (408, "request_timeout")


async def test_a_connection_that_says_nothing_is_ended() -> None:
    async with running(QUICK) as (_, server), connection(server) as raw:
        assert problem_in(await raw.rest()) == (408, "request_timeout")


async def test_a_connection_that_falls_silent_after_an_answer_is_ended() -> None:
    for more in (b"", b"\r\n"):
        async with running(QUICK) as (_, server), connection(server) as raw:
            await raw.send(get() + more)
            assert b'{"status":"alive"}' in await raw.rest()


async def test_headers_without_end_are_refused() -> None:
    async with running() as (_, server), connection(server) as raw:
        await raw.send(b"GET /healthz HTTP/1.1\r\n")
        await raw.send(b"".join(b"X-%d: y\r\n" % number for number in range(500)))
        assert problem_in(await raw.rest()) == (431, "headers_too_large")


@pytest.mark.parametrize("where", ["header", "path"])
async def test_large_headers_that_come_at_once_are_refused(where: str) -> None:
    big = b"x" * 5_000
    path, header = (b"/healthz", big) if where == "header" else (b"/" + big, b"x")
    async with running() as (_, server), connection(server) as raw:
        await raw.send(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nX: " + header + b"\r\n\r\n")
        assert problem_in(await raw.rest()) == (431, "headers_too_large")


async def test_a_body_does_not_count_as_headers() -> None:
    body = b'{"x": "' + b"y" * 60_000 + b'"}'
    head = (
        f"PUT /v1/topics/payments/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        f"application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with running() as (_, server), connection(server) as raw:
        await raw.send(head.encode() + body)
        assert problem_in(await raw.rest()) == (400, "invalid_request")


async def test_what_is_not_http_is_a_problem_too() -> None:
    async with running() as (_, server):
        for data in (
            b"nonsense\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET /a HTTP/9.9\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n",
        ):
            async with connection(server) as raw:
                await raw.send(data)
                assert problem_in(await raw.rest()) == (400, "invalid_request"), data


async def test_connections_above_the_cap_are_turned_away() -> None:
    limits = ApiLimits(connections_max=1, shutdown_deadline_s=1)
    async with running(limits) as (_, server), connection(server) as first:
        await first.send(get())
        assert (await first.reader.readline()).split()[1] == b"200"
        async with connection(server) as second:
            assert problem_in(await second.rest()) == (503, "retry_later")


async def test_requests_in_a_row_are_answered_in_order() -> None:
    async with running() as (_, server), connection(server) as raw:
        closing = get("/readyz").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        await raw.send(get() + get("/nothing") + closing)
        text = await raw.rest()
        assert text.index(b"alive") < text.index(b"no_such_route") < text.index(b"ready")


async def test_a_client_that_goes_away_stops_the_read() -> None:
    async with running() as (node, server):
        node.rlm.stream = FakeStream([b"x" * 1000], hangs=True)
        async with connection(server) as raw:
            await raw.send(get(f"{BASE}/records?offset=0"))
            await raw.reader.readuntil(b"x" * 1000)
            assert not node.rlm.stream.closed
        while not node.rlm.stream.closed:
            await asyncio.sleep(0.001)


async def test_a_client_that_takes_no_bytes_is_cut_off_and_the_read_stops() -> None:
    async with running(QUICK) as (node, server):
        node.rlm.stream = FakeStream([b"x" * 1_000_000] * 1_000)
        async with connection(server) as raw:
            await raw.send(get(f"{BASE}/records?offset=0"))
            while not node.rlm.stream.closed:
                await asyncio.sleep(0.001)
            assert not (await raw.rest()).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("path", ["records?offset=0", f"segments/{segment_uuid(0)}/log"])
async def test_an_error_in_the_middle_is_seen_as_a_broken_answer(path: str) -> None:
    async with running() as (node, server):
        node.rlm.stream = FakeStream([b"first", RuntimeError("boom")])
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await client.get(f"{BASE}/{path}")


async def test_an_answer_under_way_is_cut_at_the_end_of_the_shutdown_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as (node, server):
        node.rlm.stream = FakeStream([b"first"], hangs=True)
        async with connection(server) as raw:
            await raw.send(get(f"{BASE}/records?offset=0"))
            await raw.reader.readuntil(b"first")
            await server.close()
            assert node.rlm.stream.closed
            await raw.rest()
    lines = [each for each in caplog.records if each.name != "uvicorn.error"]
    assert ["the node stops" in each.getMessage() for each in lines] == [True]
    assert not any(each.exc_info for each in caplog.records)


async def test_a_taken_port_is_an_instruction() -> None:
    async with running() as (node, server):
        with pytest.raises(InvalidRequest, match="choose a different port") as caught:
            await serve(node.app(), "127.0.0.1", server.port)
        assert caught.value.field == "http.port"
    with pytest.raises(InvalidRequest):
        await serve(node.app(), "no.such.host.invalid", 0)
    with pytest.raises(InvalidRequest, match=r"cannot listen on a\.\.b port 0"):
        await serve(node.app(), "a..b", 0)


def write_certificate(
    folder: Path,
    name: str,
    encryption: serialization.KeySerializationEncryption = NOT_ENCRYPTED,
) -> TlsFiles:
    """A self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = TlsFiles(folder / "certificate.pem", folder / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            encryption,
        )
    )
    return files


async def name_shown(server: ApiServer) -> bytes:
    """The certificate that a new connection is shown."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert isinstance(shown, bytes)
    return shown


async def test_tls_answers_and_takes_new_certificates(tmp_path: Path) -> None:
    files = write_certificate(tmp_path, "first")
    async with running(tls=files) as (_, server):
        first = await name_shown(server)
        context = ssl.create_default_context(cafile=str(files.certificate))
        context.check_hostname = False
        async with httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{server.port}", verify=context
        ) as client:
            assert (await client.get("/v1/cluster")).status_code == 200
        files.certificate.write_text("nonsense")
        with pytest.raises(InvalidRequest):
            server.reload_tls()
        assert await name_shown(server) == first
        write_certificate(tmp_path, "second")
        server.reload_tls()
        assert await name_shown(server) != first


async def until_ended(silent: Raw) -> None:
    with suppress(ConnectionError):
        assert await silent.reader.read() == b""


async def test_handshakes_that_do_not_end_are_bounded_and_keep_nobody_out(tmp_path: Path) -> None:
    tls = write_certificate(tmp_path, "one")
    limits = replace(PATIENT, connections_max=4, header_deadline_s=60)
    async with running(limits, tls) as (_, server), AsyncExitStack() as opened:
        silent = [await opened.enter_async_context(connection(server)) for _ in range(20)]
        async with asyncio.timeout(10):
            await asyncio.gather(*(until_ended(each) for each in silent[:16]))
        assert await name_shown(server)  # ends one more, and gets in
        left = [asyncio.create_task(until_ended(each)) for each in silent[17:]]
        done, _ = await asyncio.wait(left, timeout=0.1)
        assert not done
        await server.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*left)


async def test_refused_clients_that_hold_their_tls_connections_are_cut_off(tmp_path: Path) -> None:
    tls = write_certificate(tmp_path, "one")
    context = ssl.create_default_context(cafile=str(tls.certificate))
    context.check_hostname = False
    limits = replace(PATIENT, connections_max=2, connections_refused_max=3)
    async with running(limits, tls) as (_, server):
        held = []
        for _ in range(12):  # blocking sockets never answer a close
            client = socket.create_connection(("127.0.0.1", server.port))
            held.append(await asyncio.to_thread(context.wrap_socket, client))
        async with asyncio.timeout(10):
            while server.connections > 5:
                await asyncio.sleep(0.01)
        for each in held:
            each.close()


async def test_clients_without_a_certificate_are_not_admitted_under_mutual_tls(
    tmp_path: Path,
) -> None:
    files = write_certificate(tmp_path, "node")
    tls = TlsFiles(files.certificate, files.key, client_ca=files.certificate)
    context = ssl.create_default_context(cafile=str(files.certificate))
    context.check_hostname = False
    async with running(tls=tls) as (_, server):
        url = f"https://127.0.0.1:{server.port}"
        # AsyncClient raises OpenSSL's own error where it reads an alert.
        with pytest.raises(httpx.TransportError, match="CERTIFICATE_REQUIRED"):
            await asyncio.to_thread(httpx.get, f"{url}/healthz", verify=context, trust_env=False)
        context.load_cert_chain(files.certificate, files.key)
        async with httpx.AsyncClient(base_url=url, verify=context) as client:
            assert (await client.get("/healthz")).status_code == 200


async def test_certificate_files_that_are_wrong_are_an_instruction(tmp_path: Path) -> None:
    node = make_node()
    files = TlsFiles(tmp_path / "none.pem", tmp_path / "none.key")
    with pytest.raises(InvalidRequest) as caught:
        await serve(node.app(), "127.0.0.1", 0, tls=files)
    assert caught.value.field == "http.tls_certificate_file"
    files = write_certificate(tmp_path, "node", serialization.BestAvailableEncryption(b"secret"))
    with pytest.raises(InvalidRequest, match="must not be encrypted"):
        await serve(node.app(), "127.0.0.1", 0, tls=files)


async def test_a_server_that_was_closed_stays_closed() -> None:
    async with running() as (_, server):
        port = server.port
        await server.close()
        await server.close()
        await server.wait()
        assert server.connections == 0
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
