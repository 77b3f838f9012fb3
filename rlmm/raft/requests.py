"""Own requests under way: each has a deadline of the core's own, whatever the driver does."""

from __future__ import annotations

from rlmm.raft.actions import SendRequest
from rlmm.raft.messages import FetchRequest, PeerRequest, ReplicaKey
from rlmm.raft.replica import PendingRequest, Replica


def send(r: Replica, peer: ReplicaKey, request: PeerRequest, deadline_ms: int) -> int:
    """Returns its id. Changing the state forgets all requests, so an old answer finds none."""
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
