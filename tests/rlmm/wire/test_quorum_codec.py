"""Every message of the quorum survives the wire; kio is the oracle of what is on it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from kafka_client.frame_check import FrameError
from kafka_formats.host_names import is_host
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlmm.log.quorum_records import Endpoint
from rlmm.quorum.config import LISTENER_NAME
from rlmm.quorum.network_ports import ProduceAnswer
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    PeerResponse,
    ReplicaKey,
    SnapshotId,
    UpdateVoterRequest,
    UpdateVoterResponse,
    Voter,
    VoteRequest,
    VoteResponse,
)
from rlmm.wire import frames, schema
from rlmm.wire.frames import SIZE, VERSIONS, Api
from rlmm.wire.hot_codec import FETCH_VERSION, PRODUCE_VERSION, HotCodec
from rlmm.wire.quorum_codec import PeerRefusedError, QuorumCodec, RequestRefusedError, api_of

CLUSTER = "c3RyYW5kbGluZS10ZXN0Mg"
TOPIC_ID = bytes(range(16))
CODEC = QuorumCodec(CLUSTER, TOPIC_ID)
HOT = HotCodec(CLUSTER, TOPIC_ID)

int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**62)
correlations = st.integers(0, 2**31 - 1)
keys = st.builds(
    ReplicaKey,
    st.integers(0, 2**31 - 1),
    st.binary(min_size=16, max_size=16).map(lambda raw: "" if raw == ZERO_UUID else str(Uuid(raw))),
)
epochs = st.integers(0, 2**31 - 1)
snapshot_ids = st.builds(SnapshotId, st.integers(0, 2**62), epochs)
errors = st.sampled_from(Error)
fetches = st.builds(
    FetchRequest, keys, epochs, int64, int32, epochs, st.integers(0, 2**31 - 1), int64, int64
)
uncounted = fetches.map(lambda fetch: replace(fetch, counts=False))
fetched = st.builds(
    FetchResponse,
    errors,
    int32,
    int32,
    int64,
    int64,
    st.none(),
    st.none() | snapshot_ids,
) | st.builds(
    FetchResponse,
    errors,
    int32,
    int32,
    int64,
    int64,
    st.builds(EpochEnd, epochs, int64),
)
leader_at = st.none() | st.tuples(st.text("ab.", min_size=1), st.integers(1, 65_535))
voter_keys = st.builds(
    ReplicaKey, epochs, st.binary(min_size=16, max_size=16).map(lambda raw: str(Uuid(raw)))
).filter(lambda key: key.directory_id != str(Uuid(bytes(ZERO_UUID))))
endpoints = st.builds(
    Endpoint,
    st.just(LISTENER_NAME),
    st.text("ab.", min_size=1).filter(is_host),
    st.integers(1, 65_535),
).map(lambda each: (each,))
requests: st.SearchStrategy[PeerRequest] = (
    st.builds(VoteRequest, int32, keys, keys, int32, int64, st.booleans(), st.booleans(), int64)
    | st.builds(BeginQuorumEpochRequest, int32, int32, keys, leader_at)
    | st.builds(
        EndQuorumEpochRequest, int32, int32, st.lists(keys, max_size=5).map(tuple), leader_at
    )
    | fetches
    | uncounted
    | st.builds(FetchSnapshotRequest, keys, int32, snapshot_ids, int64, int32)
    | st.builds(UpdateVoterRequest, epochs, st.builds(Voter, voter_keys, endpoints))
)
responses: st.SearchStrategy[PeerResponse] = (
    st.builds(
        VoteResponse, errors, int32, int32, st.booleans(), int32, int64, st.booleans(), leader_at
    )
    | st.builds(BeginQuorumEpochResponse, errors, int32, int32, leader_at)
    | st.builds(EndQuorumEpochResponse, errors, int32, int32, leader_at)
    | st.builds(replace, fetched, leader_at=leader_at)
    | st.builds(
        FetchSnapshotResponse,
        errors,
        int32,
        int32,
        st.none() | snapshot_ids,
        int64,
        int64,
        leader_at=leader_at,
    )
    | st.builds(UpdateVoterResponse, errors, int32, int32, leader_at)
)
_RESPONSE_API = {
    VoteResponse: Api.VOTE,
    BeginQuorumEpochResponse: Api.BEGIN_QUORUM_EPOCH,
    EndQuorumEpochResponse: Api.END_QUORUM_EPOCH,
    FetchResponse: Api.FETCH,
    FetchSnapshotResponse: Api.FETCH_SNAPSHOT,
    UpdateVoterResponse: Api.UPDATE_RAFT_VOTER,
}


def frame_of(sent: bytes) -> bytes:
    """Without its size, which must be right."""
    assert SIZE.unpack_from(sent)[0] == len(sent) - SIZE.size
    return sent[SIZE.size :]


def as_kio_reads_and_writes(entity: Any, data: bytes) -> bytes:
    """What kio makes of the bytes, written by kio."""
    value, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, value)
    return buffer.getvalue()


@given(requests, correlations)
def test_every_request_survives_the_wire(request: PeerRequest, correlation_id: int) -> None:
    api = api_of(request)
    sent = frames.encode_request(api, VERSIONS[api][1], correlation_id, CODEC.request_body(request))
    decoded = frames.decode_request(frame_of(sent))
    assert (decoded.api, decoded.correlation_id) == (api, correlation_id)
    assert CODEC.read_request(api, decoded.body) == request


@given(responses, correlations, st.binary(max_size=50))
def test_every_response_survives_the_wire(
    response: PeerResponse, correlation_id: int, data: bytes
) -> None:
    api = _RESPONSE_API[type(response)]
    version = VERSIONS[api][1]
    if not isinstance(response, FetchResponse | FetchSnapshotResponse):
        data = b""
    sent = frames.encode_response(api, version, correlation_id, CODEC.response_body(response, data))
    frame = frame_of(sent)
    assert int.from_bytes(frame[:4]) == correlation_id
    assert CODEC.read_response(api, frames.decode_response(api, version, frame)) == (response, data)


@given(requests | responses)
@example(UpdateVoterResponse(Error.NONE, -1, -1, None))
def test_kio_writes_the_same_bytes(message: PeerRequest | PeerResponse) -> None:
    body = bytearray()
    if type(message) in _RESPONSE_API:
        api = _RESPONSE_API[type(message)]
        entity = frames.response_type(api, VERSIONS[api][1])
        schema.write(entity, body, CODEC.response_body(message, b""))  # type: ignore[arg-type]  # ditto
    else:
        api = api_of(message)  # type: ignore[arg-type]  # what is no response is a request
        entity = frames.request_type(api, VERSIONS[api][1])
        schema.write(entity, body, CODEC.request_body(message))  # type: ignore[arg-type]  # ditto
    assert as_kio_reads_and_writes(entity, bytes(body)) == bytes(body)


@given(fetches, correlations)
def test_the_fast_fetch_is_the_general_one(request: FetchRequest, correlation_id: int) -> None:
    sent = HOT.encode_fetch(request, correlation_id)
    decoded = frames.decode_request(frame_of(sent))
    assert (decoded.api, decoded.version) == (Api.FETCH, FETCH_VERSION)
    assert decoded.correlation_id == correlation_id
    assert CODEC.read_request(Api.FETCH, decoded.body) == request
    assert HOT.decode_fetch(frame_of(sent), 21) == request


@given(uncounted)
def test_a_fetch_that_does_not_count_never_looks_like_one_that_does(request: FetchRequest) -> None:
    sent = frames.encode_request(Api.FETCH, FETCH_VERSION, 7, CODEC.request_body(request))
    assert HOT.decode_fetch(frame_of(sent), 21) is None
    assert CODEC.read_request(Api.FETCH, frames.decode_request(frame_of(sent)).body) == request


@given(fetched, st.binary(max_size=300), correlations)
def test_the_fast_fetch_response_is_the_general_one(
    response: FetchResponse, data: bytes, correlation_id: int
) -> None:
    frame = frame_of(HOT.encode_fetched(response, data, correlation_id))
    assert int.from_bytes(frame[:4]) == correlation_id
    body = frames.decode_response(Api.FETCH, FETCH_VERSION, frame)
    assert CODEC.read_response(Api.FETCH, body) == (response, data)
    assert HOT.decode_fetched(frame) == (response, data)


@given(st.binary(max_size=300), epochs, correlations, st.booleans())
def test_the_fast_produce_is_the_general_one(
    records: bytes, timeout_ms: int, correlation_id: int, forwarded: bool
) -> None:
    frame = frame_of(HOT.encode_produce(records, timeout_ms, correlation_id, forwarded=forwarded))
    decoded = frames.decode_request(frame)
    assert (decoded.api, decoded.version) == (Api.PRODUCE, PRODUCE_VERSION)
    assert decoded.correlation_id == correlation_id
    assert decoded.body == {
        "transactional_id": None,
        "acks": -1,
        "timeout": timeout_ms,
        "topic_data": [
            {"topic_id": TOPIC_ID, "partition_data": [{"index": 0, "records": records}]}
        ],
        "forwarded": forwarded,
    }
    assert frames.encode_request(Api.PRODUCE, PRODUCE_VERSION, correlation_id, decoded.body) == (
        SIZE.pack(len(frame)) + frame
    )
    assert HOT.decode_produce(frame, 21) == (-1, timeout_ms, records, forwarded)


@given(st.builds(ProduceAnswer, errors, int64, st.booleans(), int32, int32), correlations)
def test_the_fast_produce_response_is_the_general_one(
    answer: ProduceAnswer, correlation_id: int
) -> None:
    frame = frame_of(HOT.encode_produced(answer, correlation_id))
    assert HOT.decode_produced(frame) == answer
    (topic,) = frames.decode_response(Api.PRODUCE, PRODUCE_VERSION, frame)["responses"]
    (partition,) = topic["partition_responses"]
    assert topic["topic_id"] == TOPIC_ID
    assert partition["error_code"] == answer.error.value
    assert partition["base_offset"] == answer.base_offset
    leader = {"leader_id": answer.leader_id, "leader_epoch": answer.leader_epoch}
    assert partition["current_leader"] == leader
    assert partition["appended"] == answer.appended


@given(requests, st.data())
def test_a_damaged_request_is_refused_in_one_of_two_ways(
    request: PeerRequest, data: st.DataObject
) -> None:
    api = api_of(request)
    frame = bytearray(
        frame_of(frames.encode_request(api, VERSIONS[api][1], 7, CODEC.request_body(request)))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(1, len(frame))) :]
    try:
        decoded = frames.decode_request(bytes(frame))
        if decoded.api is api:
            CODEC.read_request(api, decoded.body)
    except (FrameError, RequestRefusedError):
        pass
    assert HOT.decode_fetch(bytes(frame), 21) is None or api is Api.FETCH


VOTE = VoteRequest(3, ReplicaKey(1, ""), ReplicaKey(2, ""), 2, 10, pre_vote=True)


def vote_body() -> Any:
    return CODEC.request_body(VOTE)


@pytest.mark.parametrize("cluster_id", ["another", None])
def test_a_request_of_another_cluster_is_refused(cluster_id: str | None) -> None:
    with pytest.raises(RequestRefusedError, match="the cluster in each meta") as refused:
        CODEC.read_request(Api.VOTE, {**vote_body(), "cluster_id": cluster_id})
    assert refused.value.code.name == "inconsistent_cluster_id"


@pytest.mark.parametrize(("name", "index"), [("orders", 0), ("__remote_log_metadata", 1)])
def test_a_request_for_another_partition_is_refused(name: str, index: int) -> None:
    body = vote_body()
    body["topics"][0]["topic_name"] = name
    body["topics"][0]["partitions"][0]["partition_index"] = index
    with pytest.raises(RequestRefusedError, match="is not here") as refused:
        CODEC.read_request(Api.VOTE, body)
    assert refused.value.code.name == "unknown_topic_or_partition"


def test_a_request_for_two_partitions_is_refused() -> None:
    body = vote_body()
    body["topics"] *= 2
    with pytest.raises(RequestRefusedError, match="exactly one") as refused:
        CODEC.read_request(Api.VOTE, body)
    assert refused.value.code.name == "invalid_request"


def test_the_refusal_of_a_peer_has_a_name() -> None:
    body = {"error_code": 31, "topics": []}
    with pytest.raises(PeerRefusedError, match="CLUSTER_AUTHORIZATION_FAILED"):
        CODEC.read_response(Api.VOTE, body)


def test_unknown_tagged_fields_are_skipped() -> None:
    request = FetchSnapshotRequest(ReplicaKey(1, ""), 2, SnapshotId(3, 4), 5, 6)
    frame = frame_of(frames.encode_request(Api.FETCH_SNAPSHOT, 1, 9, CODEC.request_body(request)))
    assert frame[-26:-25] == b"\x01", "one tagged field, the cluster id, ends the request"
    newer = frame[:-26] + b"\x02" + frame[-25:] + b"\x95\x4e\x03abc"
    assert CODEC.read_request(Api.FETCH_SNAPSHOT, frames.decode_request(newer).body) == request


@pytest.mark.parametrize("api", list(Api))
def test_every_announced_version_has_a_schema(api: Api) -> None:
    low, high = VERSIONS[api]
    for version in range(low, high + 1):
        into = bytearray()
        entity = frames.response_type(api, version)
        schema.write(entity, into, {})
        assert schema.read(entity, bytes(into), 0)[1] == len(into)
        if b"records" not in into:
            as_kio_reads_and_writes(entity, bytes(into))
        assert frames.request_type(api, version)
