"""Passes each event to its rule, and orders the steps that follow."""

from __future__ import annotations

from rlmm.raft import (
    barriers,
    damaged_tail,
    election,
    epoch_requests,
    events,
    follower_fetch,
    high_watermark,
    leader,
    leader_fetch,
    messages,
    own_endpoints,
    progress,
    proposals,
    quorum_state,
    replica_log,
    requests,
    snapshot_download,
    snapshots,
    voter_changes,
    votes,
)
from rlmm.raft.replica import Replica
from rlmm.raft.states import Follower, Leader


def handle(r: Replica, event: events.Event) -> None:
    """Handle an event; the frequent kinds are checked first."""
    match event:
        case events.Propose():
            proposals.propose(r, event)
        case events.RequestReceived():
            _request_received(r, event)
        case events.FlushCompleted():
            _flush_completed(r, event)
        case events.ResponseReceived():
            _response_received(r, event)
        case events.CommitLearned():
            high_watermark.learned(r, event)
        case events.Tick():
            timers(r)
        case events.RequestFailed():
            _request_failed(r, event)
        case events.BarrierRequested():
            barriers.barrier_requested(r, event)
        case events.AtLeastRequested():
            barriers.at_least_requested(r, event)
        case events.WaiterCancelled():
            barriers.cancel(r, event.handle)
        case events.SnapshotTaken():
            snapshots.taken(r, event)
        case events.SnapshotsDeleted():
            snapshots.deleted(r, event)
        case events.LogStartAdvanced():
            snapshots.log_start_advanced(r, event)
        case events.SnapshotChunkWritten():
            snapshot_download.written(r, event)
        case events.SnapshotInstalled():
            snapshot_download.installed(r, event)
        case events.SnapshotDamaged():
            snapshot_download.damaged(r, event)
        case events.TransferLeadership():
            leader.transfer_requested(r, event)
        case events.AcceptCut():
            damaged_tail.accept(r, event)
        case events.Shutdown():
            leader.shut_down(r)


def timers(r: Replica) -> None:
    """Do everything that is due by the clock; a sole voter passes through all states at once."""
    for request_id in requests.expired(r):
        _request_failed(r, events.RequestFailed(request_id))
    while True:
        state = r.state
        if isinstance(state, Leader):
            leader.tick(r, state)
            return
        if state.deadline_ms > r.now:
            break
        if r.download is not None and r.download.installing and isinstance(state, Follower):
            # Installing may take long. A timer that stays due would make the driver spin.
            state.deadline_ms = r.now + r.settings.fetch_timeout_ms
            break
        election.election_time(r)
        if r.state is state or r.failed:
            break
    election.ask(r)
    leader.tell_of_resignation(r)


def _request_received(r: Replica, event: events.RequestReceived) -> None:
    request, correlation = event.request, event.correlation
    if isinstance(request, messages.FetchRequest):
        leader_fetch.handle(r, correlation, request)
    elif isinstance(request, messages.VoteRequest):
        votes.handle(r, correlation, request)
    elif isinstance(request, messages.BeginQuorumEpochRequest):
        epoch_requests.begin(r, correlation, request)
    elif isinstance(request, messages.EndQuorumEpochRequest):
        epoch_requests.end(r, correlation, request)
    elif isinstance(request, messages.FetchSnapshotRequest):
        snapshots.serve(r, correlation, request)
    elif isinstance(request, messages.UpdateVoterRequest):
        own_endpoints.requested(r, correlation, request)
    elif isinstance(request, messages.DescribeQuorumRequest):
        r.respond(correlation, progress.describe(r))
    else:
        voter_changes.requested(r, correlation, request)


def _response_received(r: Replica, event: events.ResponseReceived) -> None:
    """Observe epoch and leader first; the answer itself counts only if neither changed."""
    pending = r.requests.pop(event.request_id, None)
    if pending is None:
        return
    response = event.response
    if quorum_state.observe(r, response.leader_epoch, response.leader_id):
        return
    request_id = event.request_id
    if isinstance(response, messages.FetchResponse | messages.FetchSnapshotResponse):
        follower_fetch.answered(r, request_id, pending, response)
    elif isinstance(response, messages.VoteResponse):
        election.answered(r, request_id, pending, response)
    elif isinstance(response, messages.BeginQuorumEpochResponse):
        leader.begin_answered(r, request_id, pending, ok=response.error is messages.Error.NONE)
    elif isinstance(response, messages.UpdateVoterResponse):
        own_endpoints.ended(r, request_id, response.error)
    else:
        assert isinstance(response, messages.EndQuorumEpochResponse)
        leader.end_answered(r, request_id, pending, ok=response.error is messages.Error.NONE)


def _request_failed(r: Replica, event: events.RequestFailed) -> None:
    pending = r.requests.pop(event.request_id, None)
    if pending is None:
        return
    request_id = event.request_id
    follower_fetch.failed(r, request_id)
    own_endpoints.ended(r, request_id, None)
    leader.begin_answered(r, request_id, pending, ok=False)
    leader.end_answered(r, request_id, pending, ok=False)
    unsupported = event.unsupported_version
    election.failed(r, request_id, pending, unsupported_version=unsupported)


def _flush_completed(r: Replica, event: events.FlushCompleted) -> None:
    if not replica_log.flushed(r, event):
        return
    damaged_tail.forget_if_healed(r)
    if isinstance(r.state, Leader):
        leader.synced(r, r.state)
        high_watermark.update_as_leader(r)
        leader.continue_transfer(r)
    else:
        high_watermark.advance(r, r.high_watermark)
