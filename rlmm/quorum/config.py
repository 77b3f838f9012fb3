"""Who a replica is, and what it takes from its surroundings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rlmm.log.quorum_records import Endpoint
from rlmm.raft.messages import ReplicaKey, VoterSet
from rlmm.raft.timers import RaftSettings

LISTENER_NAME = "QUORUM"
"""Of the endpoint in the voters record where a replica is reached by the others."""


@dataclass(frozen=True, slots=True)
class Ambient:
    """What the driver takes from its surroundings; times in milliseconds or seconds by name."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random_fraction: Callable[[], float]


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Who this replica is. `format_voters` counts until the log names voters; `bootstrap` are
    addresses of nodes to ask for the leader, by node id. `incarnation` is higher at each start of
    the directory and hardly ever the same twice (`rlmm/raft/identity.py`). `endpoints` are those
    that the voter set is to have of this replica; none: whatever it has.
    """

    cluster_id: str
    key: ReplicaKey
    format_voters: VoterSet
    bootstrap: tuple[tuple[int, str, int], ...] = ()
    listener_name: str = LISTENER_NAME
    settings: RaftSettings = field(default_factory=RaftSettings)
    incarnation: int = -1
    endpoints: tuple[Endpoint, ...] = ()
