"""Strangers, damage and floods at the listener: each is refused with a line that says what to do,
and the quorum goes on.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum.network_ports import Answer, ListenerView, PeerFailedError, ProduceAnswer
from rlmm.raft.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    ReplicaKey,
    Request,
    VoteRequest,
    VoteResponse,
)
from rlmm.wire import frames
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.frames import SIZE, VERSIONS, Api
from rlmm.wire.listener import QuorumListener
from rlmm.wire.peers import WirePeers
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from rlmm.wire.server_connection import ListenerLimits
from strandline.node import ambient
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.wire.wire_network import CLUSTER_ID, HOST, TOPIC_ID, Wire, leader_of, replicas

KEY = ReplicaKey(2, str(directory_id(2)))
ME = ReplicaKey(1, str(directory_id(1)))
VOTE = VoteRequest(3, KEY, ME, 2, 10, pre_vote=True)
FETCH = FetchRequest(KEY, 3, 10, 2, 500, 1 << 20)
VIEW = ListenerView(1, 3, 0, 4, ((1, HOST, 9), (2, HOST, 10)))


CONSUMER_FETCH = {
    "max_wait": 0,
    "max_bytes": 99,
    "topics": [
        {
            "topic_id": TOPIC_ID,
            "partitions": [{"partition": 0, "fetch_offset": 2, "partition_max_bytes": 99}],
        }
    ],
}


class FakeServer:
    """A quorum that answers what a test says."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.produced: list[bytes] = []
        self.proposed: list[tuple[bytes, int]] = []
        self.fetched = asyncio.Event()
        self.produce_answer: Callable[[], Awaitable[ProduceAnswer]] = self._appended

    async def answer(self, request: Request) -> Answer:
        self.asked.append(request)
        if isinstance(request, FetchRequest):
            await self.fetched.wait()
            return Answer(FetchResponse(Error.NONE, 1, 3, 12), b"")
        return Answer(VoteResponse(Error.NONE, 1, 3, vote_granted=True))

    async def _appended(self) -> ProduceAnswer:
        return ProduceAnswer(Error.NONE, 40 + len(self.produced))

    async def produce(self, records: bytes) -> ProduceAnswer:
        self.produced.append(records)
        return await self.produce_answer()

    async def propose(self, records: bytes, *, timeout_ms: int) -> ProduceAnswer:
        self.proposed.append((records, timeout_ms))
        return await self.produce_answer()

    async def read_committed(self, from_offset: int, bytes_max: int) -> bytes:
        return b"records from %d" % from_offset

    def view(self) -> ListenerView:
        return VIEW


class Served:
    """A listener over a `FakeServer`, and ways to reach it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.server = FakeServer()
        self.troubles: list[str] = []
        self.listener = QuorumListener(
            self.server,
            ServedLog(CLUSTER_ID, 1, TOPIC_ID),
            ListenerAmbient(ambient.sleep, lambda: 0, ambient.new_nonce),
            authorisation=wire.authorisation,
            tls=wire.server_tls,
            limits=wire.listener_limits,
            trouble=self.troubles.append,
        )
        self.port = 0
        self._peers: list[WirePeers] = []

    async def start(self) -> None:
        self.port = await self.listener.start(HOST, 0)

    def peers(self, wire: Wire | None = None) -> WirePeers:
        peers = (wire or self.wire).peers()
        peers.set_addresses({1: (HOST, self.port)})
        self._peers.append(peers)
        return peers

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port)

    async def close(self) -> None:
        for peers in self._peers:
            await peers.close()
        await self.listener.close()


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts listeners; what they log while a test runs is in `caplog`."""
    started: list[Served] = []

    async def start(**changes: Any) -> Served:
        served = Served(replace(Wire(), **changes))
        started.append(served)
        await served.start()
        return served

    yield start
    for served in started:
        await served.close()


async def ask(served: Served, api: Api, version: int, body: Any) -> Any:
    """One request of a client that did not log in."""
    reader, writer = await served.connect()
    try:
        writer.write(frames.encode_request(api, version, 5, body))
        return frames.decode_response(api, version, await read_frame(reader))
    finally:
        writer.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.readexactly(SIZE.unpack(await reader.readexactly(4))[0])


async def assert_hung_up(reader: asyncio.StreamReader) -> None:
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except ConnectionError:
        pass


async def test_a_peer_is_answered(serve: Serve) -> None:
    served = await serve()
    peers = served.peers()
    voted = await peers.ask(1, VOTE, deadline_ms=5_000)
    assert voted == VoteResponse(Error.NONE, 1, 3, vote_granted=True)
    assert served.server.asked == [VOTE]
    produced = await peers.produce(1, b"batch", deadline_ms=5_000)
    assert produced == ProduceAnswer(Error.NONE, 41)
    assert served.server.produced == [b"batch"]


async def test_a_fetch_that_waits_delays_nothing_else(serve: Serve) -> None:
    served = await serve()
    peers = served.peers()
    fetching = asyncio.create_task(peers.ask(1, FETCH, deadline_ms=5_000))
    while FETCH not in served.server.asked:
        await asyncio.sleep(0)
    await peers.ask(1, VOTE, deadline_ms=5_000)
    assert not fetching.done()
    served.server.fetched.set()
    assert await fetching == FetchResponse(Error.NONE, 1, 3, 12)


async def test_a_produce_that_waits_delays_no_vote(serve: Serve) -> None:
    served = await serve()
    committed = asyncio.Event()

    async def wait() -> ProduceAnswer:
        await committed.wait()
        return ProduceAnswer(Error.NOT_LEADER_OR_FOLLOWER, appended=True, leader_id=3)

    served.server.produce_answer = wait
    peers = served.peers()
    producing = asyncio.create_task(peers.produce(1, b"batch", deadline_ms=5_000))
    while not served.server.produced:
        await asyncio.sleep(0)
    await peers.ask(1, VOTE, deadline_ms=5_000)
    committed.set()
    assert await producing == ProduceAnswer(
        Error.NOT_LEADER_OR_FOLLOWER, appended=True, leader_id=3
    )


async def test_answers_come_in_the_order_of_the_requests(serve: Serve) -> None:
    served = await serve(authorisation=Authorisation())
    reader, writer = await served.connect()
    writer.write(
        frames.encode_request(Api.FETCH, 16, 1, CONSUMER_FETCH)
        + frames.encode_request(Api.API_VERSIONS, 3, 2, {})
        + frames.encode_request(Api.FETCH, 16, 3, CONSUMER_FETCH)
    )
    answers = [await read_frame(reader) for _ in range(3)]
    assert [int.from_bytes(answer[:4]) for answer in answers] == [1, 2, 3]
    (topic,) = frames.decode_response(Api.FETCH, 16, answers[2])["responses"]
    assert topic["partitions"][0]["records"] == b"records from 2"
    writer.close()


async def test_requests_in_any_pieces_are_read(serve: Serve) -> None:
    served = await serve()
    reader, writer = await served.connect()
    sent = frames.encode_request(Api.METADATA, 12, 1, {"topics": None})
    for byte in sent + sent:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    for _ in range(2):
        metadata = frames.decode_response(Api.METADATA, 12, await read_frame(reader))
        assert metadata["topics"][0]["topic_id"] == TOPIC_ID
        assert [broker["node_id"] for broker in metadata["brokers"]] == [1]
    writer.close()


async def test_more_requests_than_may_be_under_way_wait_their_turn(serve: Serve) -> None:
    limits = ListenerLimits(anonymous_requests_in_flight_max=2)
    served = await serve(listener_limits=limits)
    reader, writer = await served.connect()
    for number in range(0, 100, 2):
        writer.write(frames.encode_request(Api.METADATA, 12, number, {"topics": None}))
        writer.write(frames.encode_request(Api.FETCH, 16, number + 1, CONSUMER_FETCH))
    for number in range(100):
        assert int.from_bytes((await read_frame(reader))[:4]) == number
    writer.close()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "announced a request of 1195725856 bytes"),
        (struct.pack(">i", 2**31 - 1), "announced a request of 2147483647 bytes"),
        (struct.pack(">i", -1) + b"x", "announced a request of -1 bytes"),
        (struct.pack(">i", 70_000), "8 to 16384 are accepted"),
        (SIZE.pack(12) + b"\0\x03\0\x0c\0\0\0\x01\0\x09ab", "a value ends at byte"),
        (SIZE.pack(10) + b"\0\x63\0\0\0\0\0\x01\xff\xff", "sent API key 99"),
        (SIZE.pack(10) + b"\0\x03\0\x63\0\0\0\x01\xff\xff", "in version 99"),
        (SIZE.pack(11) + b"\0\x12\0\0\0\0\0\x01\xff\xff\0", "1 bytes after the end"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "security protocol"),
    ],
    ids=["http", "2 GiB", "negative", "large", "truncated", "api key", "version", "long", "tls"],
)
async def test_bytes_that_are_no_request_end_the_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture, sent: bytes, says: str
) -> None:
    served = await serve()
    reader, writer = await served.connect()
    writer.write(sent)
    await assert_hung_up(reader)
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert says in line
    assert line.startswith("quorum listener of node 1: 127.0.0.1:")
    await served.peers().ask(1, VOTE, deadline_ms=5_000)
    writer.close()


async def test_a_request_cut_short_is_logged_with_who_sent_what_and_where_to_look(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    reader, writer = await served.connect()
    host, port = writer.get_extra_info("sockname")[:2]
    low, _ = VERSIONS[Api.PRODUCE]
    head = struct.pack(">hhih", Api.PRODUCE, low, 1, -1)
    cut = head + struct.pack(">hhii", -1, -1, 1_000, -1)  # no topics: null
    writer.write(SIZE.pack(len(cut)) + cut)
    await assert_hung_up(reader)
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert f"{host}:{port} sent PRODUCE version {low} of {len(cut)} bytes" in line
    assert "a list is null before byte" in line
    assert "check the program at that address" in line
    writer.close()


async def test_an_unknown_version_of_api_versions_is_answered_as_kafka_does(serve: Serve) -> None:
    served = await serve()
    reader, writer = await served.connect()
    writer.write(SIZE.pack(10) + b"\0\x12\0\x63\0\0\0\x05\xff\xff")
    answer = frames.decode_response(Api.API_VERSIONS, 0, await read_frame(reader))
    assert answer["error_code"] == 35
    announced = {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]
    }
    assert announced == VERSIONS
    writer.close()


PARTITION = {"partitions": [{}], "partition_data": [{"records": b""}]}
PEERS_ONLY = [
    (Api.VOTE, {"topics": [{"topic_name": "t", **PARTITION}]}),
    (Api.BEGIN_QUORUM_EPOCH, {}),
    (Api.END_QUORUM_EPOCH, {}),
    (Api.ENVELOPE, {}),
    (Api.FETCH_SNAPSHOT, {}),
    (Api.ADD_RAFT_VOTER, {}),
    (Api.REMOVE_RAFT_VOTER, {}),
    (Api.UPDATE_RAFT_VOTER, {}),
    (Api.FETCH, {"replica_state": {"replica_id": 2, "replica_epoch": -1}}),
    (Api.PRODUCE, {"acks": -1, "topic_data": [{"topic_id": TOPIC_ID, **PARTITION}]}),
]


@pytest.mark.parametrize(("api", "body"), PEERS_ONLY, ids=lambda value: getattr(value, "name", ""))
async def test_only_peers_may_take_part(
    serve: Serve, caplog: pytest.LogCaptureFixture, api: Api, body: Any
) -> None:
    served = await serve()
    answer = await ask(served, api, VERSIONS[api][1], body)
    if api is Api.PRODUCE:
        (answer,) = answer["responses"][0]["partition_responses"]
    assert answer["error_code"] == 31
    assert f"sent {api.name}, which is refused: only peers may" in caplog.text
    assert (served.server.asked, served.server.produced, served.server.proposed) == ([], [], [])


async def test_where_reading_is_switched_off_strangers_learn_the_versions_only(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(authorisation=replace(Wire().authorisation, anonymous_reads=False))
    assert (await ask(served, Api.API_VERSIONS, 3, {}))["error_code"] == 0
    reader, writer = await served.connect()
    writer.write(frames.encode_request(Api.METADATA, 12, 1, {"topics": None}))
    await assert_hung_up(reader)
    assert "sent METADATA and is not a peer: log in as a peer" in caplog.text
    await served.peers().ask(1, VOTE, deadline_ms=5_000)
    writer.close()


async def test_a_peer_of_another_cluster_is_told_so(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    strangers = served.peers(replace(served.wire, cluster_id="YW5vdGhlci1jbHVzdGVyLQ"))
    for request in (VOTE, FETCH):
        with pytest.raises(PeerFailedError, match="INCONSISTENT_CLUSTER_ID"):
            await strangers.ask(1, request, deadline_ms=5_000)
    assert "the cluster in each meta.properties" in caplog.text
    assert "node 1 refuses VOTE: INCONSISTENT_CLUSTER_ID. Check that" in caplog.text
    assert served.server.asked == []


async def test_a_connection_that_is_ended_to_make_room_is_not_a_peers(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(listener_limits=ListenerLimits(connections_max=3))
    peers = served.peers()
    await peers.ask(1, VOTE, deadline_ms=5_000)
    strangers = [await served.connect() for _ in range(4)]
    assert (await ask(served, Api.API_VERSIONS, 3, {}))["error_code"] == 0
    await peers.ask(1, VOTE, deadline_ms=5_000)
    assert served.listener.connection_count <= 3
    assert "was ended to make room: there are 3 connections" in caplog.text
    for _, writer in strangers:
        writer.close()


def tick(served: Served, seconds: int) -> None:
    """What happens in so many seconds, at once."""
    for _ in range(seconds):
        for connection in tuple(served.listener._connections):
            connection.tick()


async def test_half_a_request_is_not_waited_for_for_ever(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    reader, writer = await served.connect()
    writer.write(SIZE.pack(100) + b"half")
    while not any(each._partial for each in served.listener._connections):
        await asyncio.sleep(0)
    tick(served, 32)
    await assert_hung_up(reader)
    assert "sent a part of a request and not the rest within 30 s: check the network" in caplog.text
    writer.close()


async def test_an_idle_connection_ends_without_a_word(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    reader, writer = await served.connect()
    while not served.listener.connection_count:
        await asyncio.sleep(0)
    tick(served, 602)
    await assert_hung_up(reader)
    assert "WARNING" not in caplog.text
    writer.close()


async def test_a_flood_of_refusals_does_not_flood_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    for _ in range(200):
        served.listener.refused("somebody", "is refused")
    assert caplog.text.count("is refused") == 10
    served.listener._tick()
    assert "190 more refusals" in caplog.text


async def test_a_quorum_goes_on_while_strangers_try_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replicas() as nodes:
        leader = await leader_of(nodes)
        first = await leader.log.propose((Proposal(None, b"before"),), deadline_s=10)
        (batch,) = encode_proposals(
            (Proposal(None, b"forged"),), base_offset=0, epoch=0, timestamp_ms=1
        )
        stale = VoteRequest(0, KEY, ME, 0, 0, pre_vote=True)
        for node in nodes:
            for garbage in (b"\xff" * 4_000, SIZE.pack(2**31 - 1), SIZE.pack(9) + b"\0" * 9):
                reader, writer = await asyncio.open_connection(HOST, node.port)
                writer.write(garbage)
                await assert_hung_up(reader)
                writer.close()
            stranger = replace(node.wire, credentials=None).peers()
            stranger.set_addresses({node.node_id: (HOST, node.port)})
            with pytest.raises(PeerFailedError, match="CLUSTER_AUTHORIZATION_FAILED") as refused:
                await stranger.produce(node.node_id, batch.data, deadline_ms=5_000)
            assert not refused.value.sent
            await stranger.close()
            peer = node.wire.peers()
            peer.set_addresses({node.node_id: (HOST, node.port)})
            answer = await peer.ask(
                node.node_id,
                replace(stale, voter=ReplicaKey(node.node_id, str(directory_id(node.node_id)))),
                deadline_ms=5_000,
            )
            assert answer.error is Error.FENCED_LEADER_EPOCH
            await peer.close()
        leader = await leader_of(nodes)
        end = await leader.log.propose((Proposal(None, b"after"),), deadline_s=10) + 1
        records = await leader.log.read(first, limit=99)
        assert end > first
        assert b"forged" not in {record.value for record in records}


async def test_a_request_without_an_answer_is_not_waited_for_for_ever(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    fetching = asyncio.create_task(served.peers().ask(1, FETCH, deadline_ms=60_000))
    while FETCH not in served.server.asked:
        await asyncio.sleep(0)
    tick(served, 62)
    with pytest.raises(PeerFailedError, match="connection was lost") as failed:
        await fetching
    assert failed.value.sent
    assert "waited 60 s for an answer: is there a majority?" in caplog.text
