"""BeginQuorumEpoch and EndQuorumEpoch, on the side of the voters that receive them (KIP-595)."""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import identity, quorum_state
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import (
    NONE_ID,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
)
from rlmm.raft.replica import Replica
from rlmm.raft.requests import impossible, stale
from rlmm.raft.states import Follower, Prospective


def begin(r: Replica, correlation: Hashable, request: BeginQuorumEpochRequest) -> None:
    """Follow the new leader. A Prospective that gets this from its old leader returns to it."""
    error = _check(r, request.leader_epoch, request.leader_id)
    if error is Error.NONE:
        error = identity.refused_voter_key(r, request.voter, f"node {request.leader_id}")
        if error is Error.NONE and not quorum_state.observe(
            r, request.leader_epoch, request.leader_id
        ):
            state = r.state
            if isinstance(state, Prospective) and state.leader_id == request.leader_id:
                quorum_state.to_follower(r, state.epoch, state.leader_id)
    r.respond(correlation, BeginQuorumEpochResponse(error, public_leader_id(r), r.epoch))


def end(r: Replica, correlation: Hashable, request: EndQuorumEpochRequest) -> None:
    """Handle the leader's resignation: the first preferred successor starts an election at once,
    and followers grant pre-votes although they have a leader.
    """
    error = _check(r, request.leader_epoch, request.leader_id)
    if error is Error.NONE:
        quorum_state.observe(r, request.leader_epoch, request.leader_id)
        state = r.state
        if isinstance(state, Follower) and state.leader_id == request.leader_id:
            state.leader_resigned = True
            state.deadline_ms = min(state.deadline_ms, r.now + _backoff(r, request))
    r.respond(correlation, EndQuorumEpochResponse(error, public_leader_id(r), r.epoch))


def _backoff(r: Replica, request: EndQuorumEpochRequest) -> int:
    if r.key in request.preferred:
        return r.settings.successor_backoff(request.preferred.index(r.key))
    return r.settings.election_backoff_max_ms


def _check(r: Replica, epoch: int, leader_id: int) -> Error:
    if epoch < 0 or leader_id <= NONE_ID or epoch > quorum_state.EPOCH_MAX:
        return impossible(r, leader_id, f"says that it leads epoch {epoch}")
    if epoch < r.epoch:
        return stale(r, leader_id, epoch)
    if leader_id == r.key.node_id:
        r.warn(
            f"a different process leads epoch {epoch} as node {leader_id}, which is this node: "
            "two nodes have one identity; stop the one whose data directory is the copy"
        )
        return Error.INVALID_REQUEST
    return Error.NONE
