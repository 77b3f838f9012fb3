"""Peers with the quorum's own credentials that say what is not so: each is refused with a line that
says what to do, and three real nodes over real sockets lose nothing and go on committing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from itertools import count, cycle, islice

import pytest

from kafka_client.frame_check import FrameError
from kafka_formats.errors import OutcomeUnknown, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    PeerRequest,
    ReplicaKey,
    SnapshotId,
    VoteRequest,
)
from rlmm.raft.timers import RaftSettings
from rlmm.wire import frames
from rlmm.wire.frames import SIZE, VERSIONS, Api
from rlmm.wire.listener import QuorumListener
from rlmm.wire.quorum_codec import QuorumCodec, api_of
from rlmm.wire.sasl_server import SaslServer
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from rlmm.wire.server_connection import Caller, DisconnectError
from strandline.node import ambient
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.wire.lying_leader import (
    BYTES,
    NONSENSE,
    LyingLeader,
    key_of,
    listening,
    peer_of,
    pieces,
    same_everywhere,
    written,
)
from tests.rlmm.wire.wire_network import (
    CLUSTER_ID,
    TOPIC_ID,
    Wire,
    leader_of,
    replicas,
)

MUTATIONS = 300
"""Of each valid request."""


async def test_claims_about_offsets_commit_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with replicas() as nodes:
        values = (b"%d" % number for number in count())
        acknowledged = await written(nodes, values, 5)
        first = await leader_of(nodes)
        await first.stop()
        acknowledged += await written(nodes, values, 5)  # in another epoch
        await first.start()
        leader = await leader_of(nodes)
        core = leader.log.driver.core
        liar, other = (node for node in nodes if node is not leader)
        await liar.stop()
        await other.stop()
        end, epoch = core.log_end_offset, core.epoch
        unheard = asyncio.create_task(leader.log.propose(data(b"unheard"), deadline_s=2))
        async with peer_of([leader]) as peer:
            claim = FetchRequest(key_of(liar.node_id), epoch, end + 1_000, epoch, 0, BYTES)
            lies = (
                claim,
                replace(claim, fetch_offset=2**62),
                replace(claim, fetch_offset=1, last_fetched_epoch=epoch),
                replace(claim, last_fetched_epoch=epoch + 1),
                replace(claim, fetch_offset=-1),
                replace(claim, replica=ReplicaKey(liar.node_id, str(Uuid(b"another disk....")))),
                replace(claim, replica=ReplicaKey(7, "")),
            )
            for lie in lies:
                answer = await peer.ask(leader.node_id, lie, deadline_ms=5_000)
                assert isinstance(answer, FetchResponse)
                assert answer.error is not Error.NONE or answer.diverging is not None, lie
        assert core.high_watermark == end
        with pytest.raises((OutcomeUnknown, RetryLater)):
            await unheard
        assert caplog.text.count("which was never written: refused") == 1
        assert caplog.text.count("fetches in epoch") == 1
        for node in (liar, other):
            await node.start()
        acknowledged += await written(nodes, values, 5)
        await same_everywhere(nodes, acknowledged)


async def test_stale_epochs_are_answered_as_kafka_does(caplog: pytest.LogCaptureFixture) -> None:
    async with replicas(Wire(raft=RaftSettings())) as nodes:
        leader = await leader_of(nodes)
        epoch = leader.log.driver.core.epoch
        one, two = (key_of(node.node_id) for node in nodes if node is not leader)
        me = key_of(leader.node_id)
        stale: list[tuple[PeerRequest, Error]] = [
            (VoteRequest(epoch - 1, one, me, 0, 0, pre_vote=True), Error.FENCED_LEADER_EPOCH),
            (BeginQuorumEpochRequest(one.node_id, epoch - 1, me), Error.FENCED_LEADER_EPOCH),
            (EndQuorumEpochRequest(one.node_id, epoch - 1, (two,)), Error.FENCED_LEADER_EPOCH),
            (FetchRequest(one, epoch - 1, 0, 0, 0, BYTES), Error.FENCED_LEADER_EPOCH),
            (FetchRequest(one, epoch + 1, 0, 0, 0, BYTES), Error.UNKNOWN_LEADER_EPOCH),
            (
                FetchSnapshotRequest(one, epoch - 1, SnapshotId(1, 0), 0, BYTES),
                Error.FENCED_LEADER_EPOCH,
            ),
            (
                FetchSnapshotRequest(one, epoch, SnapshotId(2**62, epoch), 0, BYTES),
                Error.SNAPSHOT_NOT_FOUND,
            ),
            (VoteRequest(-1, one, me, 0, 0, pre_vote=False), Error.INVALID_REQUEST),
            (VoteRequest(epoch, one, two, 0, 0, pre_vote=True), Error.INVALID_VOTER_KEY),
        ]
        async with peer_of([leader]) as peer:
            for request, error in stale:
                answer = await peer.ask(leader.node_id, request, deadline_ms=5_000)
                assert answer.error is error, request
        assert leader.log.driver.core.established
        # Each kind once, however often it is asked.
        assert caplog.text.count(f"asks in epoch {epoch - 1}, and this one knows of epoch") == 1
        assert caplog.text.count("wants a vote in epoch -1") == 1


# ---- a leader that lies


async def test_a_leader_that_answers_nonsense_is_replaced_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replicas() as nodes:
        values = (b"%d" % number for number in count())
        acknowledged = await written(nodes, values, 5)
        liar = nodes[2]
        honest = nodes[:2]
        await liar.stop()
        lying = LyingLeader(key_of(liar.node_id), cycle(NONSENSE))
        async with listening(lying, liar.port), peer_of(honest) as peer:
            acknowledged += await written(honest, values, 2)
            for _ in range(2):
                told = lying.told
                await lying.seize(peer, honest)
                acknowledged += await written(honest, values, 3)
                assert lying.told > told
        assert "a diverging epoch that cannot be" in caplog.text
        assert "does not continue this log: dropped" in caplog.text
        assert "offers snapshot" in caplog.text
        # Hundreds of answers, and a line of each kind at each node.
        assert caplog.text.count("a diverging epoch that cannot be") <= 4
        await liar.start()
        acknowledged += await written(nodes, values, 2)
        await same_everywhere(nodes, acknowledged)


async def test_a_snapshot_that_is_none_takes_nobodys_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replicas() as nodes:
        values = (b"%d" % number for number in count())
        acknowledged = await written(nodes, values, 5)
        liar, honest = nodes[2], nodes[:2]
        await liar.stop()
        ends = [node.log.driver.core.log_end_offset for node in honest]
        # Each node on its own, so that answers come in the order in which they are wrong.
        await honest[1].stop()
        lying = LyingLeader(key_of(liar.node_id), pieces(SnapshotId(max(ends) + 50, 1)))
        async with listening(lying, liar.port), peer_of(honest[:1]) as peer:
            await lying.seize(peer, honest[:1])
            async with asyncio.timeout(20):
                while "arrived damaged" not in caplog.text:
                    if honest[0].log.driver.core.epoch > lying.epoch:
                        await lying.seize(peer, honest[:1])
                    await asyncio.sleep(0.01)
        assert "the download starts again" in caplog.text
        for node in (liar, honest[1]):
            await node.start()
        acknowledged += await written(nodes, values, 3)
        await same_everywhere(nodes, acknowledged)
        assert all(node.log.latest_snapshot() is None for node in nodes)


# ---- any bytes at all


def mutations(sent: bytes, seed: int) -> Iterator[bytes]:
    """Valid requests with a byte or two changed, cut short, or with another length in them."""
    state = seed
    for number in count():
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        at, byte = (state >> 33) % len(sent), (state >> 25) & 0xFF
        if number % 7 == 5:
            yield sent[:at]
        elif number % 7 == 6:
            yield sent[:at] + struct.pack(">i", state >> 32 & 0x7FFFFFFF) + sent[at + 4 :]
        else:
            yield sent[:at] + bytes([byte]) + sent[at + 1 :]


def valid_requests() -> list[bytes]:
    """One of each that peers send, and the greatest version of each API with nothing in it."""
    codec, snapshot = QuorumCodec(CLUSTER_ID, TOPIC_ID), SnapshotId(5, 1)
    asked: tuple[PeerRequest, ...] = (
        VoteRequest(3, key_of(2), key_of(1), 2, 10, pre_vote=True, incarnation=7),
        BeginQuorumEpochRequest(2, 3, key_of(1)),
        EndQuorumEpochRequest(2, 3, (key_of(1), key_of(3))),
        FetchRequest(key_of(2), 3, 10, 2, 500, BYTES, 9, 7),
        FetchSnapshotRequest(key_of(2), 3, snapshot, 0, BYTES),
    )
    sent = [
        frames.encode_request(api_of(each), VERSIONS[api_of(each)][1], 7, codec.request_body(each))
        for each in asked
    ]
    sent += [frames.encode_request(Api(api), high, 7, {}) for api, (_, high) in VERSIONS.items()]
    return [each[SIZE.size :] for each in sent]


def unheard_listener() -> tuple[QuorumListener, Caller]:
    """One whose requests are begun by the test, and a caller that has logged in."""
    listener = QuorumListener(
        LyingLeader(key_of(3), cycle(NONSENSE)),
        ServedLog(CLUSTER_ID, 3, TOPIC_ID),
        ListenerAmbient(ambient.sleep, lambda: 0, ambient.new_nonce),
        authorisation=Wire().authorisation,
    )
    sasl = SaslServer(None, ambient.new_nonce, plain_allowed=False)
    return listener, Caller("a peer", sasl, is_peer=True)


async def test_no_bytes_of_a_peer_make_the_listener_fail() -> None:
    listener, caller = unheard_listener()
    answered = refused = 0
    for number, valid in enumerate(valid_requests()):
        for frame in islice(mutations(valid, number), MUTATIONS):
            try:
                begun = listener.begin(caller, frame)
                if isinstance(begun, bytes):
                    answered += 1
                elif isinstance(begun, Coroutine):
                    begun.close()
            except (FrameError, DisconnectError):
                refused += 1
    assert answered > MUTATIONS < refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"voter_id": -1}, "a voter has a node id and a directory id"),
        ({"voter_directory_id": bytes(16)}, "a voter has a node id and a directory id"),
        ({"listeners": []}, "must include one named QUORUM"),
        (
            {"listeners": [{"name": "OTHER", "host": "h", "port": 9}]},
            "must include one named QUORUM",
        ),
        ({"listeners": [{"name": "QUORUM", "host": "", "port": 9}]}, "with host and port"),
        ({"listeners": [{"name": "QUORUM", "host": "h" * 256, "port": 9}]}, "with host and port"),
        ({"listeners": [{"name": "QUORUM", "host": "h", "port": 0}]}, "with host and port"),
        ({"listeners": [{"name": "QUORUM", "host": "h..i", "port": 9}]}, "with host and port"),
        ({"cluster_id": "another"}, "it is for cluster 'another'"),
    ],
    ids=str,
)
def test_a_voter_that_nobody_could_reach_is_not_added(
    caplog: pytest.LogCaptureFixture, change: dict[str, object], says: str
) -> None:
    listener, caller = unheard_listener()
    body: dict[str, object] = {
        "cluster_id": CLUSTER_ID,
        "timeout": 1_000,
        "voter_id": 4,
        "voter_directory_id": bytes(directory_id(4)),
        "listeners": [{"name": "QUORUM", "host": "h", "port": 9}],
        "ack_when_committed": True,
    }
    sent = frames.encode_request(Api.ADD_RAFT_VOTER, 1, 7, body | change)
    answer = listener.begin(caller, sent[SIZE.size :])
    assert isinstance(answer, bytes)
    told = frames.decode_response(Api.ADD_RAFT_VOTER, 1, answer[SIZE.size :])
    assert told["error_code"] in (42, 104)
    assert says in caplog.text
