"""Adding and removing voters, one at a time (KIP-853).

A change is a VotersRecord: effective when appended, on every replica that appends it, undone by
truncation, answered when committed under the *new* majority. It may begin only when the leader has
committed in its own epoch (the known bug of the single-server method) and no other change is
uncommitted.
"""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import leader, leader_append
from rlmm.raft.messages import (
    NO_OFFSET,
    AddVoterRequest,
    Error,
    RemoveVoterRequest,
    Voter,
    VoterChangeResponse,
    VotersRecord,
)
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader, PendingChange
from rlmm.raft.voters import with_voter, without_voter


def requested(
    r: Replica, correlation: Hashable, request: AddVoterRequest | RemoveVoterRequest
) -> None:
    state = r.state
    refusal = refuse(r, request)
    if refusal is not None or not isinstance(state, Leader):
        r.respond(correlation, refusal or VoterChangeResponse(Error.INVALID_REQUEST))
        return
    removal = isinstance(request, RemoveVoterRequest)
    voter = Voter(request.voter) if isinstance(request, RemoveVoterRequest) else request.voter
    state.change = PendingChange(
        correlation,
        voter,
        removal,
        deadline_ms=r.now + request.wait_max_ms,
        ack_when_committed=removal
        or (isinstance(request, AddVoterRequest) and request.ack_when_committed),
    )
    proceed(r, state)


def refuse(r: Replica, request: AddVoterRequest | RemoveVoterRequest) -> VoterChangeResponse | None:
    """The refusal by the first failed precondition, in Kafka's order; None if all are met."""
    state = r.state
    if not isinstance(state, Leader):
        message = f"ask the leader, node {state.leader_id}" if state.leader_id >= 0 else ""
        return VoterChangeResponse(Error.NOT_LEADER_OR_FOLLOWER, message)
    if r.shutting_down or state.transfer is not None:
        return VoterChangeResponse(Error.BROKER_NOT_AVAILABLE, "leadership is moving: ask again")
    if change_under_way(r, state):
        return VoterChangeResponse(
            Error.REQUEST_TIMED_OUT, "another change of voters is under way: wait for its commit"
        )
    if not committed_in_own_epoch(state):
        return VoterChangeResponse(
            Error.REQUEST_TIMED_OUT, "the leader has not committed in its epoch yet: ask again"
        )
    keys = r.voters.keys
    if isinstance(request, AddVoterRequest):
        if any(key.node_id == request.voter.key.node_id for key in keys):
            return VoterChangeResponse(
                Error.DUPLICATE_VOTER,
                f"node {request.voter.key.node_id} is a voter: remove it (with its old directory "
                "id) first",
            )
        return None
    if request.voter not in keys:
        return VoterChangeResponse(
            Error.VOTER_NOT_FOUND, f"{request.voter} is not a voter: check node and directory id"
        )
    if len(keys) == 1:
        return VoterChangeResponse(Error.INVALID_REQUEST, "the last voter cannot be removed")
    return None


def committed_in_own_epoch(state: Leader) -> bool:
    """True if a record of this leader's own epoch is committed. A high watermark from its time as a
    follower is not enough: the change of an earlier leader may lie after it, on a minority whose
    voter set has a different majority than this one's, and both sets would commit.
    """
    return state.high_watermark != NO_OFFSET


def change_under_way(r: Replica, state: Leader) -> bool:
    """True while a change, requested here or left by an earlier leader, is not committed."""
    return state.change is not None or r.voters.has_uncommitted(max(state.high_watermark, 0))


def proceed(r: Replica, state: Leader) -> None:
    """Append the change, as soon as the new voter has caught up."""
    change = state.change
    if change is None or change.offset is not None:
        return
    if not change.removal and not caught_up(r, state, change.voter):
        return
    make = without_voter(r.voters.latest, change.voter.key)
    if not change.removal:
        make = with_voter(r.voters.latest, change.voter)
    change.offset = r.log.end_offset
    if not change.ack_when_committed:
        change.answered = True
        r.respond(change.correlation, VoterChangeResponse(Error.NONE))
    leader_append.append_control(r, state, (VotersRecord(make),))


def caught_up(r: Replica, state: Leader, voter: Voter) -> bool:
    """True if the new voter was at the log end lately; one that lags would stall every commit."""
    known = state.progress.get(voter.key)
    return (
        known is not None
        and known.end_offset >= 0
        and known.last_caught_up_ms >= 0
        and r.now - known.last_caught_up_ms <= r.settings.caught_up_within_ms
    )


def committed(r: Replica, state: Leader) -> None:
    """Finish a change that the high watermark passed; a leader that removed itself resigns."""
    change = state.change
    if change is None or change.offset is None or change.offset >= state.high_watermark:
        if change is None and not r.is_voter and not change_under_way(r, state):
            leader.resign(r, state)
        return
    state.change = None
    if not change.answered:
        r.respond(change.correlation, VoterChangeResponse(Error.NONE))
    if not r.is_voter:
        leader.resign(r, state)
