"""The metadata log of a quorum of one, for tests that are about something else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from rlmm.log.disk import Disk, OsDisk
from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Voter
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.network_ports import NoPeers
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.messages import ReplicaKey
from rlmm.raft.timers import RaftSettings

RARE_TICKS = RaftSettings(fetch_timeout_ms=600_000)
"""A sole voter misses nobody: its ticks, one in two seconds, do nothing while hours pass."""


async def open_sole_voter(
    metadata_directory: Path,
    *,
    node_id: int,
    directory_id: Uuid,
    view_flushed_end: int,
    now_ms: Callable[[], int],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    on_failure: Callable[[str], None],
    voters: tuple[Voter, ...] | None = None,
    limits: LogLimits | None = None,
    disk: Disk | None = None,
) -> QuorumLog:
    """Leads on return. `voters` by default is this node without an address."""
    voters = voters or (Voter(node_id, directory_id),)
    key = ReplicaKey(node_id, str(directory_id))
    monotonic = asyncio.get_running_loop().time
    return await QuorumLog.open(
        Place(metadata_directory, disk or OsDisk()),
        QuorumConfig("cluster", key, voter_set(voters), settings=RARE_TICKS),
        NoPeers(),
        view_flushed_end=view_flushed_end,
        ambient=Ambient(now_ms, monotonic, sleep, lambda: 0.5),
        on_failure=on_failure,
        limits=limits,
    )
