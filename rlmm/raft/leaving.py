"""Answers that a leader owes when it stops leading.

Records that were appended stay in the log and may still be committed by the next leader, so the
outcome for their proposers is "unknown"; no other state of the leadership is kept (KAFKA-13114).
"""

from __future__ import annotations

from rlmm.raft.actions import CommandDone, ProposalFailed, WaitersFailed
from rlmm.raft.messages import Error, FetchResponse, VoterChangeResponse
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader, Resigned


def public_leader_id(r: Replica) -> int:
    """The leader to name in responses; -1 once it has resigned."""
    return -1 if isinstance(r.state, Resigned) else r.state.leader_id


def answer_everybody(r: Replica, leader: Leader) -> None:
    error, leader_id = Error.NOT_LEADER_OR_FOLLOWER, public_leader_id(r)
    for parked in leader.parked.values():
        r.respond(parked.correlation, FetchResponse(error, leader_id, r.epoch))
    for proposal in leader.proposals:
        r.emit(ProposalFailed(proposal.handle, error, appended=True, leader_id=leader_id))
    waiting = [handle for _, handles in leader.barriers.groups for handle in handles]
    waiting += leader.barriers.uncovered
    if waiting:
        r.emit(WaitersFailed(tuple(waiting), error, leader_id))
    change = leader.change
    if change is not None and not change.answered:
        if change.offset is None:
            response = VoterChangeResponse(error, "leadership moved; nothing was changed")
        else:
            response = VoterChangeResponse(
                Error.REQUEST_TIMED_OUT,
                "leadership moved before the change was committed: look at the voters",
            )
        r.respond(change.correlation, response)
    if leader.transfer is not None:
        # This node leads no more, as the transfer asked; another node may lead.
        r.emit(CommandDone(leader.transfer.handle, Error.NONE, "this node leads no more"))
