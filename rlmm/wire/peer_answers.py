"""Reads a peer's answer about the log's one partition. Pure."""

from __future__ import annotations

from rlmm.raft.messages import (
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    EpochEnd,
    Error,
    FetchResponse,
    FetchSnapshotResponse,
    PeerResponse,
    SnapshotId,
    VoteResponse,
)
from rlmm.wire.frames import Api
from rlmm.wire.schema import Values


def read_partition(api: Api, error: Error, partition: Values) -> tuple[PeerResponse, bytes]:
    """The response, and the records or snapshot bytes in it."""
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
