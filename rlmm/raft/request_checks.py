"""Checks that requests of several kinds share, in Kafka's order, and the warnings of refusals."""

from __future__ import annotations

from rlmm.raft.messages import Error
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader


def leader_only(r: Replica, node_id: int, epoch: int) -> Error:
    """NONE: this replica leads `epoch`, in which `node_id` asks. A fetch never raises an epoch."""
    if epoch < r.epoch:
        return stale(r, node_id, epoch)
    if epoch > r.epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    if not isinstance(r.state, Leader):
        return Error.BROKER_NOT_AVAILABLE if r.shutting_down else Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE


def stale(r: Replica, node_id: int, epoch: int) -> Error:
    """Refuse a replica that has not heard of the present epoch; the answer names it."""
    r.warn(
        f"node {node_id} asks in epoch {epoch}, and this one knows of epoch {r.epoch}: refused. "
        "A node that is new, was stopped or cut off recovers by itself; if this line keeps coming, "
        "check that the node reaches the others"
    )
    return Error.FENCED_LEADER_EPOCH


def impossible(r: Replica, node_id: int, said: str) -> Error:
    """Refuse a request that no replica would send."""
    r.warn(
        f"node {node_id} {said}, which cannot be: refused. Its data directory is damaged, or it is "
        "another program: look at its log, and at what runs at its address"
    )
    return Error.INVALID_REQUEST
