"""Checks of requests that only a leader can serve, in Kafka's order."""

from __future__ import annotations

from rlmm.raft.messages import Error
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader


def leader_only(r: Replica, epoch: int) -> Error:
    """NONE: this replica leads `epoch`. A fetch never raises anybody's epoch."""
    if epoch < r.epoch:
        return Error.FENCED_LEADER_EPOCH
    if epoch > r.epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    if not isinstance(r.state, Leader):
        return Error.BROKER_NOT_AVAILABLE if r.shutting_down else Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE
