"""Converts the quorum's RPCs between `rlmm.raft.messages` and bodies of Kafka's messages. Pure.

Bodies have the form of `schema`, in the one version of `frames.VERSIONS` that peers use. Reading a
request checks its cluster id, topic and partition, in this order, like KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_client.frame_check import FrameError
from kafka_formats.host_names import is_host
from rlmm.log.quorum_records import Endpoint
from rlmm.log.recovery import TOPIC
from rlmm.quorum.config import LISTENER_NAME
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
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
from rlmm.wire import leader_endpoints
from rlmm.wire.frames import Api
from rlmm.wire.names import OUR_TOPICS, PARTITION, directory_bytes, directory_text
from rlmm.wire.peer_answers import read_partition
from rlmm.wire.schema import Values

NOT_A_HIGH_WATERMARK = 2**63 - 1
"""The value of the high watermark in a Fetch of a replica without KIP-1166."""

KRAFT_VERSIONS = (0, 1)
"""The supported versions of `kraft.version`; from 1 on the log contains the voters."""

Body = Mapping[str, Any]
_ERRORS = {error.value: error for error in Error}


class RequestRefusedError(Exception):
    """A request that is answered with the error `code` and not processed further."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class PeerRefusedError(Exception):
    """A response with an error code for the whole request."""

    def __init__(self, code: int) -> None:
        try:
            self.name = ErrorCode(code).name.upper()
        except ValueError:
            self.name = f"error {code}"
        super().__init__(self.name)


class QuorumCodec:
    """The codec of the quorum's messages, for one cluster and topic."""

    def __init__(self, cluster_id: str, topic_id: bytes) -> None:
        self._cluster_id = cluster_id
        self._topic_id = topic_id

    def check_cluster(self, cluster_id: str | None, *, told: bool = True) -> None:
        """Raise RequestRefusedError for a different cluster id, and with `told` also
        without one.
        """
        if cluster_id != self._cluster_id and (told or cluster_id is not None):
            raise RequestRefusedError(
                ErrorCode.inconsistent_cluster_id,
                f"it is for cluster {cluster_id!r} and this is cluster {self._cluster_id!r}: check "
                "the addresses of the quorum's nodes, and the cluster in each meta.properties",
            )

    def only_partition(self, topics: Any, name_field: str, index_field: str) -> Values:
        """The request's one partition of the one topic. RequestRefusedError for any other."""
        if len(topics) != 1 or len(topics[0]["partitions"]) != 1:
            raise RequestRefusedError(
                ErrorCode.invalid_request, "exactly one partition of one topic is asked for"
            )
        name = topics[0][name_field]
        partition: Values = topics[0]["partitions"][0]
        known = name == self._topic_id if name_field == "topic_id" else name in OUR_TOPICS
        if not known or partition[index_field] != PARTITION:
            raise RequestRefusedError(
                ErrorCode.unknown_topic_or_partition,
                f"{name!r}-{partition[index_field]} is not here; this quorum has {TOPIC}-0 only",
            )
        return partition

    def _asked_partition(self, body: Values, name_field: str, index_field: str) -> Values:
        self.check_cluster(body["cluster_id"])
        return self.only_partition(body["topics"], name_field, index_field)

    def request_body(self, request: PeerRequest) -> Body:
        """The body of a peer's request."""
        return _CODECS[api_of(request)][1](self, request)

    def read_request(self, api: Api, body: Values) -> PeerRequest:
        """Decode a peer's request. RequestRefusedError for a wrong cluster, topic or partition."""
        return _CODECS[api][2](self, body)

    def _vote_body(self, request: VoteRequest) -> Body:
        partition = {
            "partition_index": PARTITION,
            "replica_epoch": request.epoch,
            "replica_id": request.candidate.node_id,
            "replica_directory_id": directory_bytes(request.candidate.directory_id),
            "voter_directory_id": directory_bytes(request.voter.directory_id),
            "last_offset_epoch": request.last_epoch,
            "last_offset": request.last_offset,
            "pre_vote": request.pre_vote,
            "all_answered": request.all_answered,
            "incarnation": request.incarnation,
        }
        return self._to_voter(request.voter.node_id, partition)

    def _read_vote(self, body: Values) -> VoteRequest:
        partition = self._asked_partition(body, "topic_name", "partition_index")
        return VoteRequest(
            partition["replica_epoch"],
            _key(partition["replica_id"], partition["replica_directory_id"]),
            _key(body["voter_id"], partition["voter_directory_id"]),
            partition["last_offset_epoch"],
            partition["last_offset"],
            partition["pre_vote"],
            partition["all_answered"],
            partition["incarnation"],
        )

    def _begin_body(self, request: BeginQuorumEpochRequest) -> Body:
        partition = {
            "partition_index": PARTITION,
            "voter_directory_id": directory_bytes(request.voter.directory_id),
            "leader_id": request.leader_id,
            "leader_epoch": request.leader_epoch,
        }
        body = self._to_voter(request.voter.node_id, partition)
        return {**body, "leader_endpoints": leader_endpoints.endpoints(request)}

    def _read_begin(self, body: Values) -> BeginQuorumEpochRequest:
        partition = self._asked_partition(body, "topic_name", "partition_index")
        voter = _key(body["voter_id"], partition["voter_directory_id"])
        return BeginQuorumEpochRequest(
            partition["leader_id"],
            partition["leader_epoch"],
            voter,
            leader_endpoints.read_endpoints(body),
        )

    def _end_body(self, request: EndQuorumEpochRequest) -> Body:
        partition = {
            "partition_index": PARTITION,
            "leader_id": request.leader_id,
            "leader_epoch": request.leader_epoch,
            "preferred_candidates": [
                {
                    "candidate_id": key.node_id,
                    "candidate_directory_id": directory_bytes(key.directory_id),
                }
                for key in request.preferred
            ],
        }
        return {
            "cluster_id": self._cluster_id,
            "topics": [{"topic_name": TOPIC, "partitions": [partition]}],
            "leader_endpoints": leader_endpoints.endpoints(request),
        }

    def _read_end(self, body: Values) -> EndQuorumEpochRequest:
        partition = self._asked_partition(body, "topic_name", "partition_index")
        preferred = tuple(
            _key(each["candidate_id"], each["candidate_directory_id"])
            for each in partition["preferred_candidates"]
        )
        return EndQuorumEpochRequest(
            partition["leader_id"],
            partition["leader_epoch"],
            preferred,
            leader_endpoints.read_endpoints(body),
        )

    def _to_voter(self, voter_id: int, partition: Body) -> Body:
        return {
            "cluster_id": self._cluster_id,
            "voter_id": voter_id,
            "topics": [{"topic_name": TOPIC, "partitions": [partition]}],
        }

    def _fetch_body(self, request: FetchRequest) -> Body:
        partition = {
            "partition": PARTITION,
            "current_leader_epoch": request.epoch,
            "fetch_offset": request.fetch_offset,
            "last_fetched_epoch": request.last_fetched_epoch,
            "partition_max_bytes": request.bytes_max,
            "replica_directory_id": directory_bytes(request.replica.directory_id),
            "high_watermark": request.high_watermark,
        }
        return {
            "cluster_id": self._cluster_id,
            "replica_state": {
                "replica_id": request.replica.node_id,
                "replica_epoch": request.incarnation,
            },
            "max_wait": request.wait_max_ms,
            "min_bytes": 1,
            "max_bytes": request.bytes_max,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
            "counts": request.counts,
        }

    def _read_fetch(self, body: Values) -> FetchRequest:
        partition = self._asked_partition(body, "topic_id", "partition")
        high_watermark = partition["high_watermark"]
        return FetchRequest(
            _key(body["replica_state"]["replica_id"], partition["replica_directory_id"]),
            partition["current_leader_epoch"],
            partition["fetch_offset"],
            partition["last_fetched_epoch"],
            body["max_wait"],
            min(body["max_bytes"], partition["partition_max_bytes"]),
            -1 if high_watermark == NOT_A_HIGH_WATERMARK else high_watermark,
            body["replica_state"]["replica_epoch"],
            body.get("counts", True),
        )

    def _fetch_snapshot_body(self, request: FetchSnapshotRequest) -> Body:
        partition = {
            "partition": PARTITION,
            "current_leader_epoch": request.epoch,
            "snapshot_id": request.snapshot._asdict(),
            "position": request.position,
            "replica_directory_id": directory_bytes(request.replica.directory_id),
        }
        return {
            "cluster_id": self._cluster_id,
            "replica_id": request.replica.node_id,
            "max_bytes": request.bytes_max,
            "topics": [{"name": TOPIC, "partitions": [partition]}],
        }

    def _read_fetch_snapshot(self, body: Values) -> FetchSnapshotRequest:
        partition = self._asked_partition(body, "name", "partition")
        snapshot = partition["snapshot_id"]
        return FetchSnapshotRequest(
            _key(body["replica_id"], partition["replica_directory_id"]),
            partition["current_leader_epoch"],
            SnapshotId(snapshot["end_offset"], snapshot["epoch"]),
            partition["position"],
            body["max_bytes"],
        )

    def _update_voter_body(self, request: UpdateVoterRequest) -> Body:
        return {
            "cluster_id": self._cluster_id,
            "current_leader_epoch": request.epoch,
            "voter_id": request.voter.key.node_id,
            "voter_directory_id": directory_bytes(request.voter.key.directory_id),
            "listeners": [
                {"name": each.name, "host": each.host, "port": each.port}
                for each in request.voter.endpoints
                if isinstance(each, Endpoint)
            ],
            "k_raft_version_feature": {
                "min_supported_version": KRAFT_VERSIONS[0],
                "max_supported_version": KRAFT_VERSIONS[1],
            },
        }

    def _read_update_voter(self, body: Values) -> UpdateVoterRequest:
        self.check_cluster(body["cluster_id"])
        key = _key(body["voter_id"], body["voter_directory_id"])
        voter = reachable_voter(key, body["listeners"])
        return UpdateVoterRequest(body["current_leader_epoch"], voter)

    def response_body(self, response: PeerResponse, data: bytes) -> Body:
        """The body of an answer to a peer; `data` are its records or snapshot bytes."""
        if isinstance(response, UpdateVoterResponse):
            host, port = response.leader_at or ("", 0)
            leader = _leader(response) | {"host": host, "port": port}
            return {"error_code": response.error.value, "current_leader": leader}
        body = self._partition_body(response, data)
        return {**body, "node_endpoints": leader_endpoints.node_endpoints(response)}

    def _partition_body(self, response: PeerResponse, data: bytes) -> Body:
        if isinstance(response, FetchResponse):
            return self._fetched_body(response, data)
        if isinstance(response, FetchSnapshotResponse):
            return _fetched_snapshot_body(response, data)
        partition = {
            "partition_index": PARTITION,
            "error_code": response.error.value,
            "leader_id": response.leader_id,
            "leader_epoch": response.leader_epoch,
        }
        if isinstance(response, VoteResponse):
            partition |= {
                "vote_granted": response.vote_granted,
                "last_epoch": response.last_epoch,
                "last_offset": response.last_offset,
                "tail_was_cut": response.tail_was_cut,
            }
        return {"topics": [{"topic_name": TOPIC, "partitions": [partition]}]}

    def read_response(self, api: Api, body: Values) -> tuple[PeerResponse, bytes]:
        """The response, and the records or snapshot bytes in it. PeerRefusedError: an error for the
        whole request. FrameError: a different shape.
        """
        if api is Api.UPDATE_RAFT_VOTER:
            return _read_updated_voter(body), b""
        if body["error_code"]:
            raise PeerRefusedError(body["error_code"])
        topics = body["responses"] if api is Api.FETCH else body["topics"]
        if len(topics) != 1 or len(topics[0]["partitions"]) != 1:
            raise FrameError("the answer is not about exactly one partition")
        partition = topics[0]["partitions"][0]
        code = partition["error_code"]
        if code not in _ERRORS:
            raise PeerRefusedError(code)
        response, data = read_partition(api, _ERRORS[code], partition)
        leader_at = leader_endpoints.read_node_endpoints(body, response.leader_id)
        return response if leader_at is None else replace(response, leader_at=leader_at), data

    def _fetched_body(self, response: FetchResponse, data: bytes) -> Body:
        partition: dict[str, Any] = {
            "partition_index": PARTITION,
            "error_code": response.error.value,
            "high_watermark": response.high_watermark,
            "last_stable_offset": response.high_watermark,
            "log_start_offset": response.log_start_offset,
            "current_leader": _leader(response),
            "aborted_transactions": None,
            "records": data,
        }
        if response.diverging is not None:
            partition["diverging_epoch"] = response.diverging._asdict()
        if response.snapshot is not None:
            partition["snapshot_id"] = response.snapshot._asdict()
        return {"responses": [{"topic_id": self._topic_id, "partitions": [partition]}]}


def reachable_voter(key: ReplicaKey, listeners: Any) -> Voter:
    """The voter that asks to join. RequestRefusedError if it has no identity, or the other voters
    could not reach it.
    """
    endpoints = tuple(Endpoint(each["name"], each["host"], each["port"]) for each in listeners)
    if key.node_id < 0 or not key.directory_id:
        raise RequestRefusedError(
            ErrorCode.invalid_request,
            f"a voter has a node id and a directory id, and this one is {key.node_id} with "
            f"{key.directory_id or 'none'}: take them from its meta.properties",
        )
    reachable = all(
        leader_endpoints.is_reachable(each.host, each.port) and is_host(each.host)
        for each in endpoints
    )
    if not reachable or LISTENER_NAME not in {each.name for each in endpoints}:
        raise RequestRefusedError(
            ErrorCode.invalid_request,
            f"the voter's listeners must include one named {LISTENER_NAME}, each with host and "
            "port: else the other voters could not reach it",
        )
    return Voter(key, endpoints)


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(node_id, directory_text(directory_id))


def _read_updated_voter(body: Values) -> UpdateVoterResponse:
    error = _ERRORS.get(body["error_code"])
    if error is None:
        raise PeerRefusedError(body["error_code"])
    leader = body["current_leader"]
    at = (leader["host"], leader["port"])
    leader_at = at if leader_endpoints.is_reachable(*at) else None
    return UpdateVoterResponse(error, leader["leader_id"], leader["leader_epoch"], leader_at)


def _leader(response: PeerResponse) -> dict[str, Any]:
    return {"leader_id": response.leader_id, "leader_epoch": response.leader_epoch}


def _fetched_snapshot_body(response: FetchSnapshotResponse, data: bytes) -> Body:
    snapshot = response.snapshot or SnapshotId(-1, -1)
    partition = {
        "index": PARTITION,
        "error_code": response.error.value,
        "snapshot_id": snapshot._asdict(),
        "current_leader": _leader(response),
        "size": response.size_bytes,
        "position": response.position,
        "unaligned_records": data,
    }
    return {"topics": [{"name": TOPIC, "partitions": [partition]}]}


_Write = Callable[[QuorumCodec, Any], Body]
_ReadRequest = Callable[[QuorumCodec, Values], PeerRequest]
_CODECS: Mapping[Api, tuple[type[PeerRequest], _Write, _ReadRequest]] = {
    Api.VOTE: (VoteRequest, QuorumCodec._vote_body, QuorumCodec._read_vote),
    Api.BEGIN_QUORUM_EPOCH: (
        BeginQuorumEpochRequest, QuorumCodec._begin_body, QuorumCodec._read_begin
    ),
    Api.END_QUORUM_EPOCH: (EndQuorumEpochRequest, QuorumCodec._end_body, QuorumCodec._read_end),
    Api.FETCH: (FetchRequest, QuorumCodec._fetch_body, QuorumCodec._read_fetch),
    Api.FETCH_SNAPSHOT: (
        FetchSnapshotRequest, QuorumCodec._fetch_snapshot_body, QuorumCodec._read_fetch_snapshot
    ),
    Api.UPDATE_RAFT_VOTER: (
        UpdateVoterRequest, QuorumCodec._update_voter_body, QuorumCodec._read_update_voter
    ),
}  # fmt: skip
_APIS = {request: api for api, (request, _, _) in _CODECS.items()}


def api_of(request: PeerRequest) -> Api:
    """The API of this kind of request."""
    return _APIS[type(request)]
