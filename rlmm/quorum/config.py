"""The identity of a replica, and its surroundings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rlmm.log.disk import Disk, OsDisk
from rlmm.log.quorum_records import Endpoint
from rlmm.raft.messages import ReplicaKey, VoterSet
from rlmm.raft.timers import RaftSettings

LISTENER_NAME = "QUORUM"
"""The name of the endpoint in the voters record at which other nodes reach a replica."""


@dataclass(frozen=True, slots=True)
class Ambient:
    """The driver's clocks and randomness; the names say if times are in milliseconds or seconds."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random_fraction: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a replica's log, and its disk."""

    metadata_directory: Path
    disk: Disk = field(default_factory=OsDisk)


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The configuration of this replica: its identity, addresses and settings. `format_voters`
    is used until the log has voters; `bootstrap` are addresses of nodes to ask for the leader, by
    node id. `incarnation` is higher at each start of the directory and hardly ever repeats
    (`rlmm/raft/identity.py`). `endpoints`: those of this replica for the voter set; none: keep the
    present ones.
    """

    cluster_id: str
    key: ReplicaKey
    format_voters: VoterSet
    bootstrap: tuple[tuple[int, str, int], ...] = ()
    listener_name: str = LISTENER_NAME
    settings: RaftSettings = field(default_factory=RaftSettings)
    incarnation: int = -1
    endpoints: tuple[Endpoint, ...] = ()
