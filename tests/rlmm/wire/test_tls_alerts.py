"""A client whose TLS handshake fails reads why, on both kinds of event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
import uvloop

from rlmm.wire.tls_handshakes import TlsHandshakes
from tests.real.certificates import Certificate, make_certificate

on_both_loops = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
versions = pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def server_tls(certificate: Certificate) -> ssl.SSLContext:
    """Of a listener that lets clients with the certificate in."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate.certificate, certificate.key)
    tls.load_verify_locations(certificate.certificate)
    tls.verify_mode = ssl.CERT_REQUIRED
    return tls


def client_tls(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate.certificate)


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(b"hello")


@asynccontextmanager
async def listening(
    tls: ssl.SSLContext, refused: list[str], *, at_once_max: int = 1
) -> AsyncIterator[int]:
    """The port of a listener that greets; it adds to `refused`."""
    handshakes = TlsHandshakes(
        tls,
        Greeter,
        at_once_max=at_once_max,
        deadline_s=10,
        refused=lambda _who, why: refused.append(why),
    )
    server = await asyncio.get_running_loop().create_server(handshakes.accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def told(port: int, client: ssl.SSLContext) -> bytes | str:
    """The greeting, or the alert; read by a client that is none of the loop's."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
            client.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
        ):
            return secured.recv(5)
    except ssl.SSLError as error:
        return error.reason or str(error)


async def told_one(tls: ssl.SSLContext, client: ssl.SSLContext, refused: list[str]) -> bytes | str:
    async with listening(tls, refused) as port:
        return await asyncio.to_thread(told, port, client)


@on_both_loops
@versions
def test_a_client_without_a_certificate_is_told(
    certificate: Certificate,
    loop: Callable[[], asyncio.AbstractEventLoop],
    version: ssl.TLSVersion,
) -> None:
    client, refused = client_tls(certificate), list[str]()
    client.maximum_version = version
    is_old = version is ssl.TLSVersion.TLSv1_2
    alert = "SSLV3_ALERT_HANDSHAKE_FAILURE" if is_old else "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(told_one(server_tls(certificate), client, refused)) == alert
    assert len(refused) == 1
    assert "check both sides' certificates" in refused[0]


@on_both_loops
def test_a_client_with_an_old_version_is_told(
    certificate: Certificate, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    tls, client = server_tls(certificate), client_tls(certificate)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(told_one(tls, client, [])) == "TLSV1_ALERT_PROTOCOL_VERSION"


@on_both_loops
@versions
def test_a_client_with_a_certificate_is_served(
    certificate: Certificate,
    loop: Callable[[], asyncio.AbstractEventLoop],
    version: ssl.TLSVersion,
) -> None:
    client, refused = client_tls(certificate), list[str]()
    client.maximum_version = version
    client.load_cert_chain(certificate.certificate, certificate.key)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(told_one(server_tls(certificate), client, refused)) == b"hello"
    assert refused == []


@on_both_loops
def test_each_of_many_clients_is_told(
    certificate: Certificate, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Half of them have the certificate, and all come at once."""
    served = client_tls(certificate)
    served.load_cert_chain(certificate.certificate, certificate.key)
    clients = [served, client_tls(certificate)] * 20

    async def all_at_once() -> list[bytes | str]:
        refused: list[str] = []
        async with listening(server_tls(certificate), refused, at_once_max=40) as port:
            answers = [asyncio.to_thread(told, port, client) for client in clients]
            return await asyncio.gather(*answers)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(all_at_once()) == [b"hello", "TLSV13_ALERT_CERTIFICATE_REQUIRED"] * 20
