"""Own requests under way, and checks that several kinds of requests share, in Kafka's order."""

from __future__ import annotations

from rlmm.raft.actions import SendRequest
from rlmm.raft.messages import Error, FetchRequest, PeerRequest, ReplicaKey
from rlmm.raft.replica import PendingRequest, Replica
from rlmm.raft.states import Leader


def send(r: Replica, peer: ReplicaKey, request: PeerRequest, deadline_ms: int) -> int:
    """Send a request; returns its id. The deadline is the core's own. A change of the state forgets
    all requests, so an old answer matches none.
    """
    request_id = r.next_request_id
    r.next_request_id += 1
    fetch_offset = request.fetch_offset if isinstance(request, FetchRequest) else -1
    r.requests[request_id] = PendingRequest(peer, r.epoch, r.now + deadline_ms, fetch_offset)
    r.emit(SendRequest(request_id, peer.node_id, request, deadline_ms))
    return request_id


def expired(r: Replica) -> list[int]:
    return [
        request_id for request_id, pending in r.requests.items() if pending.deadline_ms <= r.now
    ]


def leader_only(r: Replica, node_id: int, epoch: int) -> Error:
    """Check that this replica leads `epoch`, in which `node_id` asks; NONE if so. A fetch never
    raises an epoch.
    """
    if epoch < r.epoch:
        return stale(r, node_id, epoch)
    if epoch > r.epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    if not isinstance(r.state, Leader):
        return Error.BROKER_NOT_AVAILABLE if r.shutting_down else Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE


def stale(r: Replica, node_id: int, epoch: int) -> Error:
    """Refuse a replica in an older epoch; the response has the present one."""
    r.warn(
        f"node {node_id} asks in epoch {epoch}, and this one knows of epoch {r.epoch}: refused. "
        "A node that is new, was stopped or cut off recovers by itself; if this line keeps coming, "
        "check that the node reaches the others"
    )
    return Error.FENCED_LEADER_EPOCH


def impossible(r: Replica, node_id: int, said: str) -> Error:
    """Refuse a request that no correct replica sends."""
    r.warn(
        f"node {node_id} {said}, which cannot be: refused. Its data directory is damaged, or it is "
        "another program: look at its log, and at what runs at its address"
    )
    return Error.INVALID_REQUEST
