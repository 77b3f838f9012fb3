"""Answers written in parts, to a client with TLS and one without, on both kinds of event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.sasl_server import SaslServer
from rlmm.wire.server_connection import Caller, ListenerLimits, ServerConnection
from rlmm.wire.tls_handshakes import TlsHandshakes
from tests.real.certificates import Certificate, make_certificate

PARTS = [bytes([number]) * size for number, size in enumerate((10, 0, 3_000_000, 1, 700_000))]
REQUEST = b"\0\0\0\x08" + bytes(8)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


class Parts:
    """A listener that answers every request with the parts."""

    limits = ListenerLimits(requests_in_flight_max=1)
    share = AnonymousShare(requests_per_turn=1, requests_per_s=1, answer_bytes_max=1)

    def begin(self, _caller: Caller, _frame: bytes) -> Awaitable[bytes]:
        return self._answer()

    async def _answer(self) -> bytes:
        for part in PARTS:
            await self.connection.write_part(part)
        return b""

    def accepted(self, connection: ServerConnection) -> Caller:
        self.connection = connection
        sasl = SaslServer(None, str, plain_allowed=False)
        return Caller("a client", sasl, is_peer=True)

    def ended(self, _connection: ServerConnection) -> None: ...

    def refused(self, _who: str, why: str) -> None:
        raise AssertionError(why)


async def reads_all_parts(certificate: Certificate | None) -> None:
    parts, loop = Parts(), asyncio.get_running_loop()

    def made() -> ServerConnection:
        return ServerConnection(parts)

    accept: Callable[[], asyncio.Protocol] = made
    client = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate.certificate, certificate.key)
        accept = TlsHandshakes(
            tls, made, at_once_max=1, deadline_s=10, refused=parts.refused
        ).accept
        client = ssl.create_default_context(cafile=certificate.certificate)
    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    async with asyncio.timeout(20):
        for _ in range(3):
            writer.write(REQUEST)
            assert await reader.readexactly(sum(map(len, PARTS))) == b"".join(PARTS)
    writer.transport.abort()
    server.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("with_tls", [False, True])
def test_a_client_gets_every_part(
    loop: Callable[[], asyncio.AbstractEventLoop], certificate: Certificate, with_tls: bool
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(reads_all_parts(certificate if with_tls else None))
