"""Peers by certificate, and by secret inside TLS; everybody else may read, or not even that."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rlmm.metadata_log import Proposal
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.wire import frames
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.envelope_sender import send_envelope
from rlmm.wire.frames import Api
from rlmm.wire.peer_connection import PeerSecurity
from rlmm.wire.server_connection import ListenerLimits
from strandline.node import ambient
from tests.real.certificates import Certificate, make_certificate
from tests.rlmm.wire.test_listener import VOTE, Served, read_frame
from tests.rlmm.wire.wire_network import HOST, Wire, leader_of, replicas


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("another"))


def server_side(own: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(own.certificate))
    context.load_cert_chain(own.certificate, own.key)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_side(trusted: Certificate, own: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(trusted.certificate))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


def by_certificate(own: Certificate, authorisation: Authorisation) -> Wire:
    return Wire(authorisation, None, server_side(own), client_side(own, own))


async def envelope_to(served: Served, tls: ssl.SSLContext) -> bytes:
    security, at = PeerSecurity(tls), (HOST, served.port)
    return await send_envelope(security, ambient.new_nonce, at, Envelope(b"", b""), 10)


def fingerprint(of: Certificate) -> str:
    der = ssl.PEM_cert_to_DER_cert(Path(of.certificate).read_text())
    return hashlib.sha256(der).hexdigest()


def on_loop(
    factory: Callable[[], asyncio.AbstractEventLoop], test: Coroutine[Any, Any, None]
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(test)


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
"""Nodes run on uvloop, which begins a handshake in another order."""


async def test_three_nodes_agree_by_certificate(certificate: Certificate) -> None:
    known = Authorisation(certificate_names=frozenset({HOST}))
    async with replicas(by_certificate(certificate, known)) as nodes:
        leader = await leader_of(nodes)
        offsets = await asyncio.gather(
            *(node.log.propose((Proposal(None, b"x"),), deadline_s=10) for node in nodes)
        )
        assert len(set(offsets)) == 3
        assert leader.listener.connection_count >= 2


async def test_three_nodes_agree_by_secret_inside_tls(certificate: Certificate) -> None:
    wire = replace(
        Wire(), server_tls=server_side(certificate), client_tls=client_side(certificate, None)
    )
    async with replicas(wire) as nodes:
        await leader_of(nodes)
        offsets = [await node.log.propose((Proposal(None, b"x"),), deadline_s=10) for node in nodes]
        assert len(set(offsets)) == 3


async def test_a_known_fingerprint_is_enough(certificate: Certificate) -> None:
    known = Authorisation(certificate_fingerprints=frozenset({fingerprint(certificate)}))
    served = Served(by_certificate(certificate, known))
    await served.start()
    assert (await served.peers().ask(1, VOTE, deadline_ms=5_000)).leader_id == 1
    with pytest.raises(PeerFailedError, match="it is starting or stopping"):  # nothing takes it
        await envelope_to(served, client_side(certificate, certificate))
    await served.close()


@pytest.mark.parametrize("told", [True, False])
async def test_a_certificate_that_is_not_named_or_not_told_makes_no_peer(
    certificate: Certificate, told: bool
) -> None:
    names = frozenset({"node-1.example.org"}) if told else frozenset({HOST})
    wire = by_certificate(certificate, Authorisation(certificate_names=names))
    served = Served(wire)
    await served.start()
    reaching = served.peers(
        replace(wire, client_tls=client_side(certificate, certificate if told else None))
    )
    with pytest.raises(PeerFailedError, match="CLUSTER_AUTHORIZATION_FAILED"):
        await reaching.ask(1, VOTE, deadline_ms=5_000)
    with pytest.raises(PeerFailedError, match="does not accept this node as one of the cluster"):
        await envelope_to(served, client_side(certificate, certificate if told else None))
    await served.close()


async def test_a_certificate_of_another_authority_does_not_get_in(
    certificate: Certificate, another: Certificate
) -> None:
    wire = by_certificate(certificate, Authorisation(certificate_names=frozenset({HOST})))
    served = Served(wire)
    await served.start()
    forged = served.peers(replace(wire, client_tls=client_side(certificate, another)))
    with pytest.raises(PeerFailedError):
        await forged.ask(1, VOTE, deadline_ms=5_000)
    assert served.server.asked == []
    await served.close()


async def test_a_listener_of_another_authority_is_not_believed(
    certificate: Certificate, another: Certificate
) -> None:
    wire = by_certificate(certificate, Authorisation(certificate_names=frozenset({HOST})))
    served = Served(wire)
    await served.start()
    wary = served.peers(replace(wire, client_tls=client_side(another, certificate)))
    with pytest.raises(PeerFailedError, match="certificate authority") as failed:
        await wary.ask(1, VOTE, deadline_ms=5_000)
    assert not failed.value.sent
    await served.close()


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
def test_a_certificate_that_is_not_believed_is_in_the_log_of_whoever_looked_at_it(
    loop: Callable[[], asyncio.AbstractEventLoop],
    certificate: Certificate,
    another: Certificate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As after it expired: otherwise a quorum without a leader would say nothing."""

    async def run() -> None:
        wire = by_certificate(certificate, Authorisation(certificate_names=frozenset({HOST})))
        served = Served(wire)
        await served.start()
        wary = served.peers(replace(wire, client_tls=client_side(another, certificate)))
        forged = served.peers(replace(wire, client_tls=client_side(certificate, another)))
        for peers in (wary, wary, forged):
            with pytest.raises(PeerFailedError):
                await peers.ask(1, VOTE, deadline_ms=5_000)
            await asyncio.sleep(0.05)  # the pause before the next attempt
        await served.close()

    on_loop(loop, run())
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len([each for each in told if "its certificate is not accepted" in each]) == 1
    assert any("certificate verify failed" in each.lower() for each in told), told


async def test_everybody_may_read_inside_tls(certificate: Certificate) -> None:
    served = Served(by_certificate(certificate, Authorisation()))
    await served.start()
    reader, writer = await asyncio.open_connection(
        HOST, served.port, ssl=client_side(certificate, None)
    )
    writer.write(frames.encode_request(Api.DESCRIBE_CLUSTER, 0, 1, {}))
    answer = frames.decode_response(Api.DESCRIBE_CLUSTER, 0, await read_frame(reader))
    assert [broker["broker_id"] for broker in answer["brokers"]] == [1, 2]
    assert answer["controller_id"] == 1
    writer.transport.abort()
    await served.close()


async def test_plain_text_gets_nothing_from_a_listener_with_tls(certificate: Certificate) -> None:
    served = Served(by_certificate(certificate, Authorisation()))
    await served.start()
    with pytest.raises(PeerFailedError):
        await served.peers(Wire()).ask(1, VOTE, deadline_ms=5_000)
    await served.close()


async def hung_up_on(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(30):
        with suppress(ConnectionError):
            assert await reader.read() == b""


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
def test_handshakes_are_bounded_as_connections_are_and_whoever_hangs_lets_others_in(
    loop: Callable[[], asyncio.AbstractEventLoop],
    certificate: Certificate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        limits = ListenerLimits(connections_max=3, tls_handshake_deadline_s=1.0)
        known = Authorisation(certificate_names=frozenset({HOST}))
        served = Served(replace(by_certificate(certificate, known), listener_limits=limits))
        await served.start()
        await served.peers().ask(1, VOTE, deadline_ms=20_000)
        silent = [await served.connect() for _ in range(20)]
        await served.peers().ask(1, VOTE, deadline_ms=20_000)
        for reader, _ in silent[: -limits.connections_max]:
            await hung_up_on(reader)
        assert "was ended to make room: 3 TLS handshakes are under way" in caplog.text
        for reader, writer in silent:
            await hung_up_on(reader)
            writer.close()
        await served.close()

    on_loop(loop, run())


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
def test_a_handshake_under_way_ends_with_the_listener(
    loop: Callable[[], asyncio.AbstractEventLoop], certificate: Certificate
) -> None:
    async def run() -> None:
        served = Served(by_certificate(certificate, Authorisation()))
        await served.start()
        reader, writer = await served.connect()
        await asyncio.sleep(0.05)
        await served.close()
        await hung_up_on(reader)
        writer.close()

    on_loop(loop, run())


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
def test_a_client_that_goes_before_its_handshake_leaves_nothing(
    loop: Callable[[], asyncio.AbstractEventLoop], certificate: Certificate
) -> None:
    """As a load balancer does that looks whether somebody listens."""

    async def run() -> None:
        known = Authorisation(certificate_names=frozenset({HOST}))
        served = Served(by_certificate(certificate, known))
        await served.start()
        for first_bytes in (b"", b"\x16\x03", b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(10):
                # All of it is there before the listener's loop hears of anything.
                with socket.create_connection((HOST, served.port)) as client:
                    client.sendall(first_bytes)
        await served.peers().ask(1, VOTE, deadline_ms=20_000)
        async with asyncio.timeout(30):
            while served.listener.connection_count > 1:
                await asyncio.sleep(0.01)
        await served.close()

    on_loop(loop, run())
