"""A voter whose endpoints differ from those in the voter set reports them to the leader (KIP-853,
UpdateVoter).

It sends the request once it follows, and again every fetch timeout (half of it after an error)
until its own log has the new endpoints. A leader whose own address changed writes it with the first
batch of its epoch. Votes and majorities do not change.
"""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import leader_append, requests, voter_changes
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import (
    Error,
    ReplicaKey,
    UpdateVoterRequest,
    UpdateVoterResponse,
    Voter,
    VotersRecord,
)
from rlmm.raft.replica import Replica
from rlmm.raft.requests import leader_only
from rlmm.raft.states import Follower, Leader
from rlmm.raft.voters import with_endpoints


def outdated(r: Replica) -> bool:
    """True if the voter set has other endpoints of this voter than it has itself."""
    voter = r.voters.find(r.key) if r.endpoints else None
    return voter is not None and voter.endpoints != r.endpoints


def next_due_ms(r: Replica) -> int | None:
    """The time of the next `poll`; None: there is nothing to report."""
    state = r.state
    if not isinstance(state, Follower) or not state.has_fetched or r.shutting_down:
        return None
    return r.update.due_ms if r.update.in_flight is None and outdated(r) else None


def poll(r: Replica) -> None:
    """Send the request to the leader, if it is due."""
    due_ms = next_due_ms(r)
    if due_ms is None or due_ms > r.now:
        return
    leader_id = r.state.leader_id
    peer = next((key for key in r.voters.keys if key.node_id == leader_id), ReplicaKey(leader_id))
    request = UpdateVoterRequest(r.epoch, Voter(r.key, r.endpoints))
    r.update.in_flight = requests.send(r, peer, request, r.settings.request_timeout_ms)
    r.update.due_ms = r.now + r.settings.fetch_timeout_ms


def ended(r: Replica, request_id: int, error: Error | None) -> None:
    """Take the answer; None: the request failed. It is done once this log has its record."""
    if r.update.in_flight != request_id:
        return
    r.update.in_flight = None
    if error is not Error.NONE:
        r.update.due_ms = r.now + r.settings.begin_quorum_epoch_period_ms
    if error in (Error.INVALID_REQUEST, Error.VOTER_NOT_FOUND, Error.UNSUPPORTED_VERSION):
        r.warn(
            f"node {r.state.leader_id}, the leader, does not take this node's new address "
            f"({error.name}): check `quorum.advertised` and `strandline quorum describe`"
        )


def requested(r: Replica, correlation: Hashable, request: UpdateVoterRequest) -> None:
    """Append the new endpoints, on the leader, and answer at once, as Kafka does."""
    error = _check(r, request)
    state = r.state
    if error is Error.NONE and isinstance(state, Leader):
        known = r.voters.find(request.voter.key)
        if known is not None and known.endpoints != request.voter.endpoints:
            changed = with_endpoints(r.voters.latest, request.voter)
            leader_append.append_control(r, state, (VotersRecord(changed),))
    r.respond(correlation, UpdateVoterResponse(error, public_leader_id(r), r.epoch))


def _check(r: Replica, request: UpdateVoterRequest) -> Error:
    error = leader_only(r, request.voter.key.node_id, request.epoch)
    state = r.state
    if error is not Error.NONE or not isinstance(state, Leader):
        return error
    if r.shutting_down or state.transfer is not None:
        return Error.BROKER_NOT_AVAILABLE
    may_change = voter_changes.committed_in_own_epoch(state)
    if not may_change or voter_changes.change_under_way(r, state):
        return Error.REQUEST_TIMED_OUT
    if request.voter.key not in r.voters.keys:
        return Error.VOTER_NOT_FOUND
    return Error.NONE if request.voter.endpoints else Error.INVALID_REQUEST
