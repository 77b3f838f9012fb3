"""A node with the quorum's credentials that says what is not so, and what a quorum is measured by:
what was acknowledged is there, on every node the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

from kafka_formats.errors import OutcomeUnknown, RetryLater
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum.network_ports import Answer, ListenerView, ProduceAnswer
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerResponse,
    ReplicaKey,
    Request,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from rlmm.wire.listener import QuorumListener
from rlmm.wire.peers import WirePeers
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from strandline.node import ambient
from tests.rlmm.quorum.following import collect, data
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.wire.wire_network import (
    CLUSTER_ID,
    HOST,
    TOPIC_ID,
    Wire,
    WireReplica,
    leader_of,
)

BYTES = 1 << 20


def key_of(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, str(directory_id(node_id)))


@asynccontextmanager
async def peer_of(nodes: list[WireReplica]) -> AsyncIterator[WirePeers]:
    """Whoever has the secret."""
    peers = nodes[0].wire.peers()
    peers.set_addresses({node.node_id: (HOST, node.port) for node in nodes})
    try:
        yield peers
    finally:
        await peers.close()


async def written(nodes: list[WireReplica], values: Iterator[bytes], number: int) -> list[bytes]:
    """So many records, proposed by whoever leads; those that were acknowledged."""
    done: list[bytes] = []
    async with asyncio.timeout(60):
        while len(done) < number:
            leader = await leader_of(nodes, deadline_s=30)
            value = next(values)
            try:
                await leader.log.propose(data(value), deadline_s=5)
            except (OutcomeUnknown, RetryLater):
                continue
            done.append(value)
    return done


async def same_everywhere(nodes: list[WireReplica], acknowledged: list[bytes]) -> None:
    """Nothing acknowledged is lost, and every running node has the same log."""
    await written(nodes, (b"end %d" % number for number in count()), 1)
    leader = await leader_of(nodes)
    end = leader.log.driver.core.high_watermark
    logs = [await collect(node, end) for node in nodes if node.running]
    assert all(log == logs[0] for log in logs)
    values = [record.value for record in logs[0]]
    assert [value for value in values if value in set(acknowledged)] == acknowledged


class LyingLeader:
    """A voter that gets itself elected with a log it does not have, and then answers nonsense."""

    def __init__(self, me: ReplicaKey, lies: Iterator[Answer]) -> None:
        self.me = me
        self.epoch = 0
        self.told = 0
        self._lies = lies

    async def answer(self, request: Request) -> Answer:
        if isinstance(request, FetchRequest | FetchSnapshotRequest) and request.epoch == self.epoch:
            self.told += 1
            lie = next(self._lies)
            assert isinstance(lie.response, FetchResponse | FetchSnapshotResponse)
            return replace(lie, response=self._signed(request, lie.response))
        refused: PeerResponse = FetchResponse(Error.NOT_LEADER_OR_FOLLOWER, -1, self.epoch)
        if isinstance(request, VoteRequest):
            refused = VoteResponse(Error.NONE, -1, max(self.epoch, request.epoch))
        await asyncio.sleep(0.01)
        return Answer(refused)

    def _signed(
        self, request: Request, lie: FetchResponse | FetchSnapshotResponse
    ) -> FetchResponse | FetchSnapshotResponse:
        """Of the kind that was asked for."""
        if isinstance(request, FetchSnapshotRequest) and isinstance(lie, FetchResponse):
            lie = FetchSnapshotResponse(
                Error.NONE, 0, 0, request.snapshot, 50, request.position + 7
            )
        elif isinstance(request, FetchRequest) and isinstance(lie, FetchSnapshotResponse):
            lie = FetchResponse(Error.NONE, 0, 0, diverging=EpochEnd(1, -5))
        return replace(lie, leader_id=self.me.node_id, leader_epoch=self.epoch)

    async def produce(self, records: bytes) -> ProduceAnswer:
        return ProduceAnswer(Error.NONE, 2**62 + len(records), leader_epoch=self.epoch)

    async def propose(self, records: bytes, *, timeout_ms: int) -> ProduceAnswer:
        return ProduceAnswer(Error.NONE, timeout_ms + len(records))

    async def read_committed(self, from_offset: int, bytes_max: int) -> bytes:
        return b"\0" * min(bytes_max, from_offset)

    def view(self) -> ListenerView:
        return ListenerView(self.me.node_id, self.epoch, 0, 2**62, ())

    async def seize(self, peer: WirePeers, voters: list[WireReplica]) -> None:
        """Win every vote of an epoch with the longest log there can be."""
        self.epoch = max(node.log.driver.core.epoch for node in voters) + 1
        for node in voters:
            vote = VoteRequest(
                self.epoch, self.me, key_of(node.node_id), self.epoch - 1, 2**62, pre_vote=False
            )
            answer = await peer.ask(node.node_id, vote, deadline_ms=5_000)
            assert isinstance(answer, VoteResponse)
            begin = BeginQuorumEpochRequest(self.me.node_id, self.epoch, key_of(node.node_id))
            await peer.ask(node.node_id, begin, deadline_ms=5_000)


def fetched(payload: bytes = b"", **fields: object) -> Answer:
    response = FetchResponse(Error.NONE, 0, 0, **fields)  # type: ignore[arg-type]  # as a test says
    return Answer(response, payload)


def forged(base: int, epoch: int) -> bytes:
    (batch,) = encode_proposals(
        (Proposal(None, b"forged"),), base_offset=base, epoch=epoch, timestamp_ms=1
    )
    return batch.data


NONSENSE = (
    fetched(diverging=EpochEnd(2**31 - 1, 3), high_watermark=2**62),
    fetched(diverging=EpochEnd(0, -9)),
    fetched(snapshot=SnapshotId(2**62, 2**31 - 1)),
    fetched(snapshot=SnapshotId(1, 0)),
    fetched(snapshot=SnapshotId(0, -4)),
    fetched(forged(2**40, 1), high_watermark=2**62),
    fetched(forged(0, 1), high_watermark=-3),
    fetched(forged(3, 2**31 - 1)),
    Answer(FetchSnapshotResponse(Error.NONE, 0, 0, SnapshotId(9, 9), 2**62, -8), b"\xff" * 99),
)


@asynccontextmanager
async def listening(server: LyingLeader, port: int) -> AsyncIterator[None]:
    wire = Wire()
    listener = QuorumListener(
        server,
        ServedLog(CLUSTER_ID, server.me.node_id, TOPIC_ID),
        ListenerAmbient(ambient.sleep, lambda: 0, ambient.new_nonce),
        authorisation=wire.authorisation,
    )
    await listener.start(HOST, port)
    try:
        yield
    finally:
        await listener.close()


def pieces(snapshot: SnapshotId) -> Iterator[Answer]:
    """An offer, then pieces at the wrong place, of the wrong size, of another snapshot; in the end
    bytes that are no snapshot.
    """
    offer = fetched(snapshot=snapshot)
    right = FetchSnapshotResponse(Error.NONE, 0, 0, snapshot, 100, 0)
    wrong = (
        replace(right, position=1),
        replace(right, position=-1),
        replace(right, size_bytes=-1),
        replace(right, snapshot=SnapshotId(snapshot.end_offset + 1, snapshot.epoch)),
    )
    while True:
        for each in wrong:
            yield offer
            yield Answer(each, b"x" * 10)
        yield offer
        yield Answer(right, b"")
        yield offer
        yield Answer(right, b"x" * 101)
        yield offer
        yield Answer(right, b"x" * 60)
        yield Answer(replace(right, position=60), b"x" * 40)
