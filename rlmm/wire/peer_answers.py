"""Reads a peer's answer about the one partition. Pure."""

from __future__ import annotations

from typing import Any

from kafka_client.frame_check import FrameError
from rlmm.raft.messages import (
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochResponse,
    EpochEnd,
    Error,
    FetchResponse,
    FetchSnapshotResponse,
    PeerResponse,
    ReplicaDescription,
    ReplicaKey,
    SnapshotId,
    VoteResponse,
)
from rlmm.wire.frames import Api
from rlmm.wire.names import directory_text
from rlmm.wire.schema import Values


def read_partition(api: Api, error: Error, partition: Values) -> tuple[PeerResponse, bytes]:
    """The response and the bytes in it."""
    if api is Api.FETCH:
        return _read_fetched(error, partition)
    if api is Api.FETCH_SNAPSHOT:
        return _read_fetched_snapshot(error, partition)
    leader_id, epoch = partition["leader_id"], partition["leader_epoch"]
    if api is Api.BEGIN_QUORUM_EPOCH:
        return BeginQuorumEpochResponse(error, leader_id, epoch), b""
    if api is Api.END_QUORUM_EPOCH:
        return EndQuorumEpochResponse(error, leader_id, epoch), b""
    voted = VoteResponse(
        error,
        leader_id,
        epoch,
        partition["vote_granted"],
        partition["last_epoch"],
        partition["last_offset"],
        partition["tail_was_cut"],
    )
    return voted, b""


def _read_fetched(error: Error, partition: Values) -> tuple[FetchResponse, bytes]:
    leader, diverging = partition["current_leader"], partition["diverging_epoch"]
    snapshot = partition["snapshot_id"]
    response = FetchResponse(
        error,
        leader["leader_id"],
        leader["leader_epoch"],
        partition["high_watermark"],
        partition["log_start_offset"],
        EpochEnd(diverging["epoch"], diverging["end_offset"]) if diverging["epoch"] >= 0 else None,
        SnapshotId(snapshot["end_offset"], snapshot["epoch"])
        if snapshot["end_offset"] >= 0
        else None,
    )
    return response, partition["records"] or b""


def _read_fetched_snapshot(error: Error, partition: Values) -> tuple[FetchSnapshotResponse, bytes]:
    leader = partition["current_leader"]
    snapshot = partition["snapshot_id"]
    response = FetchSnapshotResponse(
        error,
        leader["leader_id"],
        leader["leader_epoch"],
        SnapshotId(snapshot["end_offset"], snapshot["epoch"])
        if snapshot["end_offset"] >= 0
        else None,
        partition["size"],
        partition["position"],
    )
    return response, partition["unaligned_records"]


def read_described(body: Values) -> DescribeQuorumResponse:
    """An answer to DescribeQuorum; its times are of the other node's time of day. FrameError: it is
    not about one partition, or tells an unknown error.
    """
    found = [each for topic in body["topics"] for each in topic["partitions"]]
    if body["error_code"] or len(found) != 1:
        raise FrameError(f"error {body['error_code']}, and {len(found)} partitions for one")
    (partition,) = found
    try:
        error = Error(partition["error_code"])
    except ValueError as unknown:
        raise FrameError(str(unknown)) from unknown
    return DescribeQuorumResponse(
        error,
        partition["leader_id"],
        partition["leader_epoch"],
        partition["high_watermark"],
        tuple(map(_read_replica, partition["current_voters"])),
        tuple(map(_read_replica, partition["observers"])),
    )


def _read_replica(told: Any) -> ReplicaDescription:
    return ReplicaDescription(
        ReplicaKey(told["replica_id"], directory_text(told["replica_directory_id"])),
        told["log_end_offset"],
        told["last_fetch_timestamp"],
        told["last_caught_up_timestamp"],
    )
