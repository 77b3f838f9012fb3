"""Granting votes: the rules for a replica that is asked (KIP-595, KIP-996).

Every replica is answered, and every replica may grant, even if it is not a voter by its own log:
the VotersRecord that makes it one may not have arrived yet (KAFKA-16526).
"""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import damaged_tail, identity, quorum_state
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import NONE_ID, Error, VoteRequest, VoteResponse
from rlmm.raft.replica import Replica
from rlmm.raft.requests import impossible, stale
from rlmm.raft.states import Candidate, Follower, Prospective, Resigned, State, Unattached


def handle(r: Replica, correlation: Hashable, request: VoteRequest) -> None:
    error = _check(r, request)
    granted = cut = False
    if error is Error.NONE:
        granted = can_grant(r.state, request, log_up_to_date=up_to_date(r, request))
        if damaged_tail.forbids_vote(
            r, request.last_epoch, request.last_offset, all_answered=request.all_answered
        ):
            cut, granted = granted, False
        if granted and not request.pre_vote:
            if identity.refuses_second_process(r, request):
                granted = False
            else:
                quorum_state.vote_for(r, request.candidate)
                r.vote_given = (request.epoch, request.incarnation)
    told_end = damaged_tail.told_end(r, request.candidate, pre_vote=request.pre_vote)
    response = VoteResponse(
        error, public_leader_id(r), r.epoch, granted, r.log.last_epoch, told_end, tail_was_cut=cut
    )
    r.respond(correlation, response)


def _check(r: Replica, request: VoteRequest) -> Error:
    node_id = request.candidate.node_id
    if not valid(request):
        end = f"offset {request.last_offset} in epoch {request.last_epoch}"
        return impossible(
            r, node_id, f"wants a vote in epoch {request.epoch} for a log up to {end}"
        )
    if identity.is_older(r, request.candidate, request.incarnation):
        return Error.STALE_BROKER_EPOCH
    if request.epoch < r.epoch:
        return stale(r, node_id, request.epoch)
    if request.epoch > r.epoch:
        # Before anything else, pre-vote included: the epoch exists.
        quorum_state.observe(r, request.epoch, NONE_ID)
    error = identity.refused_voter_key(r, request.voter, f"node {node_id}")
    if error is not Error.NONE:
        return error
    if request.candidate == r.key:
        r.warn(
            f"node {r.key.node_id} was asked for a vote by its own identity, and refused it: "
            f"{identity.WHAT_TO_DO}"
        )
        return Error.INVALID_REQUEST
    return Error.NONE


def valid(request: VoteRequest) -> bool:
    """True for a possible request: a candidate's epoch is above its log's last one; a pre-vote is
    requested in the present epoch.
    """
    if min(request.epoch, request.last_epoch, request.last_offset, request.candidate.node_id) < 0:
        return False
    if request.epoch > quorum_state.EPOCH_MAX:
        return False
    if request.pre_vote:
        return request.last_epoch <= request.epoch
    return request.last_epoch < request.epoch


def up_to_date(r: Replica, request: VoteRequest) -> bool:
    """True if the candidate's log is at least as up to date as this one, flushed or not."""
    return (request.last_epoch, request.last_offset) >= (r.log.last_epoch, r.log.end_offset)


def can_grant(state: State, request: VoteRequest, *, log_up_to_date: bool) -> bool:
    """True if the vote or pre-vote may be granted in this state."""
    if request.pre_vote:
        if isinstance(state, Follower):
            # The exception keeps two replicas from alternating for ever (KAFKA-17641).
            return log_up_to_date and (not state.has_fetched or state.leader_resigned)
        return log_up_to_date and isinstance(state, Unattached | Prospective | Candidate | Resigned)
    if not isinstance(state, Unattached | Prospective):
        return False
    if state.voted is not None:
        return state.voted == request.candidate
    if state.leader_id != NONE_ID:
        return False
    return log_up_to_date
