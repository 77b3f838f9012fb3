"""Envelopes between nodes: only nodes send them, and what became of one is never guessed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kafka_client.sasl import SaslCredentials
from rlmm.quorum.envelopes import Envelope, Envelopes
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.wire import envelope_sender, frames
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.envelope_sender import send_envelope
from rlmm.wire.frames import Api
from rlmm.wire.listener import QuorumListener
from rlmm.wire.peer_connection import PeerSecurity
from rlmm.wire.sasl_server import PEER_USER, PLAIN
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from strandline.node import ambient
from tests.real.ports import free_ports
from tests.rlmm.wire.test_listener import FakeServer, read_frame
from tests.rlmm.wire.wire_network import CLUSTER_ID, HOST, TOPIC_ID, Wire

ENVELOPE = Envelope(b"POST /v1/quorum/transfer", b"boss, admin")


class Node:
    """A listener that takes envelopes, and the way to it."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.wire = wire or Wire()
        self.taken: list[Envelope] = []
        self.hangs = asyncio.Event()
        self.cut_off = asyncio.Event()
        self.envelopes = Envelopes(take=self._take)
        self.listener = QuorumListener(
            FakeServer(),
            ServedLog(CLUSTER_ID, 1, TOPIC_ID, envelopes=self.envelopes),
            ListenerAmbient(ambient.sleep, lambda: 0, ambient.new_nonce),
            authorisation=self.wire.authorisation,
            limits=self.wire.listener_limits,
        )
        self.port = 0
        self.hangs.set()

    async def __aenter__(self) -> Node:
        self.port = await self.listener.start(HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()

    async def _take(self, envelope: Envelope) -> bytes:
        self.taken.append(envelope)
        try:
            await self.hangs.wait()
        except asyncio.CancelledError:
            self.cut_off.set()
            raise
        return b"done: " + envelope.request

    async def send(
        self, credentials: SaslCredentials | None = None, *, deadline_s: float = 10.0
    ) -> bytes:
        security = PeerSecurity(None, credentials or self.wire.credentials)
        at = (HOST, self.port)
        return await send_envelope(security, ambient.new_nonce, at, ENVELOPE, deadline_s)


async def test_a_peers_envelope_is_answered_and_its_connection_ends() -> None:
    async with Node() as node:
        assert await node.send() == b"done: POST /v1/quorum/transfer"
        assert node.taken == [ENVELOPE]
        async with asyncio.timeout(10):
            while node.listener.connection_count:
                await asyncio.sleep(0)


async def test_nobody_but_a_peer_sends_one(caplog: pytest.LogCaptureFixture) -> None:
    body = {"request_data": b"x", "request_principal": b"boss, admin", "client_host_address": b""}
    async with Node() as node:
        reader, writer = await asyncio.open_connection(HOST, node.port)
        writer.write(frames.encode_request(Api.ENVELOPE, 0, 5, body))
        answer = frames.decode_response(Api.ENVELOPE, 0, await read_frame(reader))
        writer.close()
        assert (answer["error_code"], answer["response_data"]) == (31, None)
        assert "sent ENVELOPE, which is refused: only peers may" in caplog.text
        with pytest.raises(PeerFailedError) as wrong:
            await node.send(SaslCredentials(PLAIN, PEER_USER, "another secret, also a long one"))
        assert not wrong.value.sent
        assert node.taken == []


async def test_a_sender_who_is_no_peer_by_certificate_is_told() -> None:
    wire = Wire(Authorisation(certificate_names=frozenset({"n1"})), credentials=None)
    async with Node(wire) as node:
        with pytest.raises(PeerFailedError, match="does not accept this node as one of") as refused:
            await node.send()
        assert (refused.value.sent, node.taken) == (False, [])


async def test_what_was_not_sent_surely_did_nothing() -> None:
    async with Node() as node:
        node.envelopes.take = None
        with pytest.raises(PeerFailedError, match="is starting or stopping") as not_serving:
            await node.send()
        node.port = free_ports(1)[0]
        with pytest.raises(PeerFailedError, match="cannot connect") as nobody:
            await node.send()
        assert (not_serving.value.sent, nobody.value.sent) == (False, False)


async def test_an_older_release_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {api: each for api, each in frames.VERSIONS.items() if api != Api.ENVELOPE}
    async with Node() as node:
        monkeypatch.setattr("rlmm.wire.listener_answers.VERSIONS", offered)
        with pytest.raises(PeerFailedError, match="its release is older") as older:
            await node.send()
        assert (older.value.sent, older.value.unsupported_version) == (False, True)
        assert node.taken == []


@pytest.mark.parametrize("ends", ["late", "cut"])
async def test_without_an_answer_it_may_have_been_done_and_the_work_is_cut_off(ends: str) -> None:
    async with Node() as node:
        node.hangs.clear()
        sending = asyncio.create_task(node.send(deadline_s=0.5 if ends == "late" else 60))
        async with asyncio.timeout(20):
            while not node.taken and not sending.done():
                await asyncio.sleep(0)
            if ends == "cut":
                await node.listener.close()
            with pytest.raises(PeerFailedError) as unknown:
                await sending
            assert unknown.value.sent is bool(node.taken)
            if node.taken:
                await node.cut_off.wait()


async def test_a_node_that_accepts_nothing_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelope_sender, "CONNECT_DEADLINE_S", 0.01)
    with socket.create_server((HOST, 0)) as silent:
        node = Node()
        node.port = silent.getsockname()[1]
        with pytest.raises(PeerFailedError, match="no connection in time") as failed:
            await node.send(deadline_s=60)
        assert not failed.value.sent
