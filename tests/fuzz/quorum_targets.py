"""What other nodes, tools and strangers send to the quorum's listener and to a peer."""

from __future__ import annotations

from functools import cache

from kafka_client.frame_check import FrameError
from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum.framing import fetched_batches, frame_produced, proposals_produced
from rlmm.raft.messages import (
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    ReplicaKey,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from rlmm.wire import frames
from rlmm.wire.frames import SIZE, VERSIONS, Api
from rlmm.wire.hot_codec import HotCodec
from rlmm.wire.quorum_codec import PeerRefusedError, QuorumCodec, RequestRefusedError
from rlmm.wire.sasl_server import PEER_USER, PLAIN, SCRAM, SaslServer, SecretVerifier
from tests.fuzz import repairs
from tests.fuzz.engine import Target
from tests.fuzz.format_targets import captured_batches

_CLUSTER = "c3RyYW5kbGluZS10ZXN0Mg"
_TOPIC_ID = bytes(range(16))
_CODEC = QuorumCodec(_CLUSTER, _TOPIC_ID)
_HOT = HotCodec(_CLUSTER, _TOPIC_ID)
_PEERS_ONLY = (
    Api.VOTE,
    Api.BEGIN_QUORUM_EPOCH,
    Api.END_QUORUM_EPOCH,
    Api.FETCH_SNAPSHOT,
    Api.UPDATE_RAFT_VOTER,
)
_KEY = ReplicaKey(1, "AAAAAAAAAAAAAAAAAAAAAQ")


@cache
def _requests() -> list[bytes]:
    frames.load_schemas()
    vote = VoteRequest(3, _KEY, _KEY, 2, 10, pre_vote=True, all_answered=True)
    fetch = FetchRequest(_KEY, 3, 10, 2, 500, 1 << 20, 9)
    sent = [
        *(
            frames.encode_request(Api(api), version, 7, {})
            for api, (low, high) in VERSIONS.items()
            for version in {low, high}
        ),
        frames.encode_request(Api.VOTE, 2, 7, _CODEC.request_body(vote)),
        _HOT.encode_fetch(fetch, 7),
        _HOT.encode_produce(b"records", 500, 7),
        _HOT.encode_produce(b"records", 500, 7, forwarded=True),
    ]
    return [frame[SIZE.size :] for frame in sent]


def _request(data: bytes) -> None:
    for decode in (_HOT.decode_fetch, _HOT.decode_produce):
        decode(data, 21)
    request = frames.decode_request(data)
    fetches = request.api is Api.FETCH and request.version == VERSIONS[Api.FETCH][1]
    if fetches or request.api in _PEERS_ONLY:
        _CODEC.read_request(request.api, request.body)


@cache
def _votes() -> list[bytes]:
    vote = VoteResponse(Error.NONE, 1, 3, True, 2, 10, True)
    sent = frames.encode_response(Api.VOTE, 2, 7, _CODEC.response_body(vote, b""))
    return [sent[SIZE.size :]]


def _vote(data: bytes) -> None:
    _CODEC.read_response(Api.VOTE, frames.decode_response(Api.VOTE, 2, data))


@cache
def _fetched() -> list[bytes]:
    batch = captured_batches()[0]
    answers = [
        (FetchResponse(Error.NONE, 1, 3, 10, 0), batch),
        (FetchResponse(Error.NONE, 1, 3, 10, 0, diverging=EpochEnd(2, 5)), b""),
        (FetchResponse(Error.NONE, 1, 3, 10, 0, snapshot=SnapshotId(9, 2)), b""),
    ]
    return [_HOT.encode_fetched(answer, data, 7)[SIZE.size :] for answer, data in answers]


def _fetch_answer(data: bytes) -> None:
    fast = _HOT.decode_fetched(data)
    general = _CODEC.read_response(Api.FETCH, frames.decode_response(Api.FETCH, 18, data))
    assert fast is None or fast == general
    tuple(fetched_batches(general[1], source="peer"))


def _produced_seeds() -> list[bytes]:
    proposals = [Proposal(1_005, b"x" * 20), Proposal(None, b"x" * 200), Proposal(None, b"")]
    batches = encode_proposals(proposals, base_offset=0, epoch=0, timestamp_ms=1)
    return [*(batch.data for batch in batches), *captured_batches()]


def _produced(data: bytes) -> None:
    """A client's records are refused wherever another node's are."""
    taken = proposals_produced(data)
    assert len(taken) == sum(each.record_count for each in frame_produced(data, timestamp_ms=1))


def _sasl(data: bytes) -> None:
    """Messages of a client, one behind the other; none of them gets in."""
    server = SaslServer(_verifier(), lambda: "nonce", plain_allowed=True)
    server.choose(SCRAM if data.startswith(b"n") else PLAIN)
    try:
        for message in data.split(b"|"):
            server.answer(message)
    finally:
        assert not server.done


@cache
def _verifier() -> SecretVerifier:
    return SecretVerifier.of("secret", b"salt")


def _peer_answers(kinds: tuple[type[Exception], ...]) -> list[Target]:
    return [
        Target(
            "quorum vote response",
            (
                "rlmm.wire.peer_answers.read_partition",
                "rlmm.wire.leader_endpoints.read_node_endpoints",
            ),
            _vote,
            _votes,
            kinds,
            factor=400,
        ),
        Target("quorum fetch response", (), _fetch_answer, _fetched, kinds, factor=400),
    ]


def quorum_targets() -> list[Target]:
    """All rows of this module."""
    kinds = (FrameError, InvalidRequest, RequestRefusedError, PeerRefusedError, CorruptData)
    decoders = ("decode_request", "decode_response", "read_request", "read_response")
    return [
        Target(
            "quorum request",
            (
                "rlmm.wire.schema.read",
                "rlmm.wire.schema.read_uvarint",
                "rlmm.wire.schema.read_client_id",
                "rlmm.wire.leader_endpoints.read_endpoints",
                *(f"rlmm.wire.frames.{name}" for name in decoders),
            ),
            _request,
            _requests,
            kinds,
            factor=400,  # an element of a few bytes becomes a dict
        ),
        *_peer_answers(kinds),
        Target(
            "quorum produce",
            ("rlmm.quorum.framing.proposals_produced", "rlmm.quorum.framing.frame_produced"),
            _produced,
            _produced_seeds,
            kinds,
            repair=repairs.whole_batch,
            factor=100,
        ),
        Target(
            "quorum login",
            (),
            _sasl,
            lambda: [
                b"n,,n=strandline-peer,r=abc",
                b"n,,n=strandline-peer,r=abc|c=biws,r=abcnonce,p=" + b"A" * 88,
                f"\0{PEER_USER}\0wrong".encode(),
            ],
            (Refused,),
            factor=100,
        ),
    ]
