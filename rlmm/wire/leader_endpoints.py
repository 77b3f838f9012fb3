"""A leader's address in messages that name a leader (KIP-853): lists of endpoints in the requests
of a new or a resigning leader, NodeEndpoints in answers. Pure.

Impossible addresses are ignored: they are a hint, and the rest of the message is still valid.
"""

from __future__ import annotations

from typing import Any

from rlmm.quorum.config import LISTENER_NAME
from rlmm.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, PeerResponse
from rlmm.wire.schema import Values

HOST_CHARACTERS_MAX = 255
PORT_MAX = 65_535


def is_reachable(host: str, port: int) -> bool:
    """True if the host and port can be an address."""
    return 0 < len(host) <= HOST_CHARACTERS_MAX and 0 < port <= PORT_MAX


def endpoints(request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> list[Values]:
    """The `leader_endpoints` of a request."""
    if request.leader_at is None:
        return []
    host, port = request.leader_at
    return [{"name": LISTENER_NAME, "host": host, "port": port}]


def read_endpoints(body: Values) -> tuple[str, int] | None:
    """The endpoint of the quorum's listener; None if there is none that can be an address."""
    named = (each for each in body["leader_endpoints"] if each["name"] == LISTENER_NAME)
    return _first(named)


def node_endpoints(response: PeerResponse) -> list[Values]:
    """The `node_endpoints` of an answer."""
    if response.leader_at is None:
        return []
    host, port = response.leader_at
    return [{"node_id": response.leader_id, "host": host, "port": port}]


def read_node_endpoints(body: Values, leader_id: int) -> tuple[str, int] | None:
    """The leader's endpoint; None if there is none that can be an address."""
    return _first(each for each in body["node_endpoints"] if each["node_id"] == leader_id)


def _first(candidates: Any) -> tuple[str, int] | None:
    found = ((each["host"], each["port"]) for each in candidates)
    return next((address for address in found if is_reachable(*address)), None)
