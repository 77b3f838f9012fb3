"""What the quorum is told when a node cannot be asked: above all, whether it may have heard."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from kafka_client.sasl import SaslCredentials
from rlmm.quorum.network_ports import PeerFailedError, ProduceAnswer
from rlmm.raft.messages import Error, FetchRequest, ReplicaKey, VoteRequest
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels
from rlmm.wire import frames, peer_connection
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.frames import VERSIONS, Api
from rlmm.wire.peers import WirePeers
from tests.real.ports import free_ports
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.wire.test_listener import Served
from tests.rlmm.wire.wire_network import HOST, Wire

KEY = ReplicaKey(2, str(directory_id(2)))
VOTE = VoteRequest(3, KEY, ReplicaKey(1, str(directory_id(1))), 2, 10, pre_vote=True)
FETCH = FetchRequest(KEY, 3, 10, 2, 500, 1 << 20)
OPEN = Wire(credentials=None)

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Node:
    """A node that does what a test says once the versions are told."""

    def __init__(self, behaviour: Behaviour, versions: dict[int, tuple[int, int]]) -> None:
        self.connections = 0
        self._behaviour = behaviour
        self._versions = versions
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._serve, HOST, port)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await read_request(reader)
            keys = [
                {"api_key": api, "min_version": low, "max_version": high}
                for api, (low, high) in self._versions.items()
            ]
            writer.write(frames.encode_response(Api.API_VERSIONS, 0, 0, {"api_keys": keys}))
            await self._behaviour(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await read_request(reader)


def answers(frame: bytes) -> Behaviour:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(frame)
        await reader.read()

    return answer


@pytest.fixture
async def peers() -> AsyncIterator[WirePeers]:
    made = OPEN.peers()
    yield made
    await made.close()


Start = Callable[..., Any]


@pytest.fixture
async def start(peers: WirePeers) -> AsyncIterator[Start]:
    """Starts a node and tells `peers` where it is."""
    nodes: list[Node] = []

    async def make(behaviour: Behaviour, versions: dict[int, tuple[int, int]]) -> Node:
        node = Node(behaviour, versions)
        nodes.append(node)
        peers.set_addresses({1: (HOST, await node.start())})
        return node

    yield make
    await peers.close()
    for node in nodes:
        await node.stop()


async def failure(asking: Coroutine[Any, Any, Any]) -> PeerFailedError:
    with pytest.raises(PeerFailedError) as failed:
        await asking
    return failed.value


async def test_a_node_without_an_address_heard_nothing(peers: WirePeers) -> None:
    error = await failure(peers.produce(7, b"x", deadline_ms=5_000))
    assert not error.sent
    assert "address is not known" in str(error)


async def test_a_node_that_is_not_there_heard_nothing(peers: WirePeers) -> None:
    (port,) = free_ports(1)
    peers.set_addresses({1: (HOST, port)})
    error = await failure(peers.produce(1, b"x", deadline_ms=5_000))
    assert not error.sent
    assert f"node 1 ({HOST}:{port}): cannot connect" in str(error)
    soon = await failure(peers.produce(1, b"x", deadline_ms=5_000))
    assert "the next attempt is due" in str(soon) or "cannot connect" in str(soon)


async def test_a_node_that_comes_back_is_reached_again(peers: WirePeers) -> None:
    served = Served(Wire())
    await served.start()
    reaching = served.peers()
    await reaching.ask(1, VOTE, deadline_ms=5_000)
    await served.listener.close()
    (error,) = {
        (await failure(reaching.ask(1, VOTE, deadline_ms=5_000))).unsupported_version
        for _ in range(3)
    }
    assert not error
    await served.listener.start(HOST, served.port)
    async with asyncio.timeout(10):
        while True:
            try:
                await reaching.ask(1, VOTE, deadline_ms=5_000)
                break
            except PeerFailedError:
                await asyncio.sleep(0.01)
    await served.close()


@pytest.mark.parametrize("behaviour", [silence, hang_up])
async def test_a_node_that_does_not_answer_may_have_heard(
    peers: WirePeers, start: Start, behaviour: Behaviour
) -> None:
    await start(behaviour, dict(VERSIONS))
    error = await failure(peers.produce(1, b"x", deadline_ms=200))
    assert error.sent
    assert not error.unsupported_version


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
async def test_a_node_whose_machine_takes_nothing_is_given_up_long_before_the_deadline(
    peers: WirePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connection, "UNACKNOWLEDGED_MAX_MS", 100)
    done = asyncio.Event()

    async def deaf(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await done.wait()

    await start(deaf, dict(VERSIONS))
    error = await failure(peers.produce(1, bytes(12 << 20), deadline_ms=60_000))
    done.set()
    assert error.sent
    assert "the connection was lost" in str(error)


async def test_what_comes_behind_a_request_without_an_answer_takes_a_new_connection(
    peers: WirePeers, start: Start
) -> None:
    node = await start(silence, dict(VERSIONS))
    first = asyncio.create_task(failure(peers.ask(1, VOTE, deadline_ms=5_000)))
    while not node.connections:
        await asyncio.sleep(0.001)
    await failure(peers.ask(1, VOTE, deadline_ms=50))
    assert "no answer to VOTE within 50 ms" in str(await first)
    await failure(peers.ask(1, VOTE, deadline_ms=50))
    assert node.connections == 2


async def test_a_caller_that_gives_up_leaves_the_connection_to_others(
    peers: WirePeers, start: Start
) -> None:
    produced = frames.encode_response  # answers both, late
    release = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [(await read_request(reader))[4:8] for _ in range(2)]
        await release.wait()
        for number, each in enumerate(ids):
            body = {"topics": [{"partitions": [{"leader_epoch": number}]}]}
            writer.write(produced(Api.VOTE, 2, int.from_bytes(each), body))
        await reader.read()

    await start(late, dict(VERSIONS))
    given_up = asyncio.create_task(peers.ask(1, VOTE, deadline_ms=5_000))
    patient = asyncio.create_task(peers.ask(1, VOTE, deadline_ms=5_000))
    await asyncio.sleep(0.05)
    given_up.cancel()
    release.set()
    assert (await patient).leader_epoch == 1


async def test_a_node_that_does_not_know_a_version_is_told_from_one_that_is_gone(
    peers: WirePeers, start: Start
) -> None:
    await start(silence, {**VERSIONS, Api.VOTE: (0, 1)})
    error = await failure(peers.ask(1, VOTE, deadline_ms=5_000))
    assert error.unsupported_version
    assert not error.sent


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"\xff\xff\xff\xff", "an answer of -1 bytes"),
        (b"HTTP/1.1 400", "is it a quorum listener"),
        (b"\0\0\0\x04\0\0\0\x63", "which is not the oldest open request"),
        (b"\0\0\0\x06\0\0\0\x01\0\x01", "malformed VOTE"),
        (frames.encode_response(Api.VOTE, 2, 1, {"topics": []}), "exactly one partition"),
    ],
)
async def test_an_answer_that_is_none_is_a_failure(
    peers: WirePeers, start: Start, frame: bytes, says: str
) -> None:
    await start(answers(frame), dict(VERSIONS))
    error = await failure(peers.ask(1, VOTE, deadline_ms=5_000))
    assert says in str(error)


@pytest.mark.parametrize("appended", [True, False])
async def test_a_refusal_that_this_release_does_not_know_tells_whether_it_was_appended(
    peers: WirePeers, start: Start, appended: bool
) -> None:
    """A newer leader's: proposed again, what was appended would be there twice."""
    answered = {"index": 0, "error_code": 87, "base_offset": -1, "appended": appended}
    body = {"responses": [{"topic_id": bytes(range(16)), "partition_responses": [answered]}]}
    await start(answers(frames.encode_response(Api.PRODUCE, 13, 1, body)), dict(VERSIONS))
    error = await failure(peers.produce(1, b"x", deadline_ms=5_000))
    assert "refuses PRODUCE: INVALID_RECORD" in str(error)
    assert error.sent == appended


async def test_damaged_records_of_a_fetch_end_it_where_the_damage_is(
    peers: WirePeers, start: Start
) -> None:
    body = {
        "responses": [
            {
                "topic_id": bytes(range(16)),
                "partitions": [{"high_watermark": 9, "records": b"\0" * 100}],
            }
        ]
    }
    await start(answers(frames.encode_response(Api.FETCH, 18, 1, body)), dict(VERSIONS))
    answer = await peers.ask(1, FETCH, deadline_ms=5_000)
    assert (answer.error, getattr(answer, "batches", None)) == (Error.NONE, ())


async def test_another_secret_is_said_before_anything_is_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = Served(Wire())
    await served.start()
    wrong = replace(OPEN, credentials=SaslCredentials("SCRAM-SHA-512", "strandline-peer", "no"))
    error = await failure(served.peers(wrong).ask(1, VOTE, deadline_ms=5_000))
    assert not error.sent
    assert "the secret file must be the same on every node" in str(error)
    assert "the secret file must be the same on every node" in caplog.text
    assert served.server.asked == []
    await served.close()


async def test_a_listener_without_a_secret_is_said() -> None:
    served = Served(Wire(authorisation=Authorisation()))
    await served.start()
    error = await failure(served.peers(Wire()).ask(1, VOTE, deadline_ms=5_000))
    assert "give it the secret file" in str(error)
    await served.close()


async def test_a_refusal_is_logged_once_and_again_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = Served(replace(OPEN, authorisation=Authorisation()))
    await served.start()
    peers = served.peers(OPEN)
    for is_peer in (False, False, True, False):
        for connection in served.listener._connections:
            assert connection._caller is not None
            connection._caller.is_peer = is_peer
        if is_peer:
            await peers.ask(1, VOTE, deadline_ms=5_000)
        else:
            assert "CLUSTER_AUTHORIZATION_FAILED" in str(
                await failure(peers.ask(1, VOTE, deadline_ms=5_000))
            )
    assert caplog.text.count("node 1 refuses VOTE: CLUSTER_AUTHORIZATION_FAILED") == 2
    await served.close()


async def test_a_login_waits_for_no_thread_that_hangs_on_a_disk() -> None:
    """The loop's own threads read the broker's disks, too."""
    served, hanging = Served(Wire()), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    hung = loop.run_in_executor(None, hanging.wait)
    try:
        await served.start()
        assert await served.peers().produce(1, b"x", deadline_ms=5_000)
    finally:
        hanging.set()
        await hung
        await served.close()


async def test_many_produce_requests_share_a_connection() -> None:
    served = Served(Wire())
    await served.start()
    sent = [b"%d" % number for number in range(40)]
    reaching = served.peers()
    found = await asyncio.gather(*(reaching.produce(1, each, deadline_ms=5_000) for each in sent))
    assert served.server.produced == sent
    assert all(answer.error is Error.NONE for answer in found)
    assert served.listener.connection_count == 1
    assert isinstance(found[0], ProduceAnswer)
    await served.close()


async def test_after_close_nothing_is_asked(peers: WirePeers) -> None:
    peers.set_addresses({1: (HOST, 9)})
    await peers.close()
    error = await failure(peers.ask(1, VOTE, deadline_ms=5_000))
    assert not error.sent


@pytest.mark.parametrize("leaves", ["another address", "no address", "shutdown"])
async def test_a_node_whose_address_changes_while_it_is_reached_heard_nothing(leaves: str) -> None:
    """Its callers are told so: a cancellation would end their tasks without a word."""

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    mute = await asyncio.start_server(says_nothing, HOST, 0)
    port = mute.sockets[0].getsockname()[1]
    peers = OPEN.peers()
    peers.set_addresses({1: (HOST, port)})
    asked = asyncio.gather(
        peers.ask(1, VOTE, deadline_ms=1_500),
        peers.produce(1, b"x", deadline_ms=1_500),
        peers.feature_levels(1, deadline_ms=1_500),
        return_exceptions=True,
    )
    await asyncio.sleep(0.1)
    match leaves:
        case "another address":
            peers.set_addresses({1: (HOST, port + 1)})
        case "no address":
            peers.set_addresses({})
        case _:
            await peers.close()
    for error in await asked:
        assert isinstance(error, PeerFailedError)
        assert not error.sent
        assert str(error) == f"{HOST}:{port}: closed"
    await peers.close()
    mute.close()
    await mute.wait_closed()


async def test_a_node_says_which_feature_levels_it_knows(peers: WirePeers) -> None:
    served = Served(Wire())
    await served.start()
    assert await served.peers().feature_levels(1, deadline_ms=5_000) == LEVELS_KNOWN
    await served.close()

    async def says_nothing_of_them(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        correlation_id = int.from_bytes((await read_request(reader))[4:8])
        writer.write(frames.encode_response(Api.API_VERSIONS, 3, correlation_id, {}))
        await reader.read()

    before_features = Node(says_nothing_of_them, dict(VERSIONS))
    peers.set_addresses({1: (HOST, await before_features.start())})
    assert await peers.feature_levels(1, deadline_ms=5_000) == FeatureLevels(1, 1)
    await before_features.stop()
    error = await failure(peers.feature_levels(1, deadline_ms=500))
    assert "API_VERSIONS" in str(error) or "connect" in str(error) or "lost" in str(error)


@pytest.mark.parametrize("host", ["node-2..example", f"{'n' * 64}.example"])
async def test_a_name_that_no_resolver_takes_is_a_node_that_is_not_there(host: str) -> None:
    """A voter set may have it: any other error would stop every node, at each start anew."""
    peers = OPEN.peers()
    peers.set_addresses({1: (host, 9_480)})
    with pytest.raises(PeerFailedError, match="cannot connect") as failed:
        await peers.ask(1, VOTE, deadline_ms=5_000)
    assert not failed.value.sent
    await peers.close()
