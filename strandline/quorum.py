"""This node's replica of the metadata log, from its settings and its data directory."""

from __future__ import annotations

from collections.abc import Callable

from rlmm.data_directory import DataDirectory
from rlmm.quorum.config import Ambient, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.no_peers import NoPeers
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.messages import ReplicaKey
from strandline import ambient


async def open_quorum_log(
    directory: DataDirectory, *, view_flushed_end: int, on_failure: Callable[[str], None]
) -> QuorumLog:
    """Recover the log and take part in its quorum. Errors: `QuorumLog.open`."""
    config = QuorumConfig(
        cluster_id=str(directory.cluster_id),
        key=ReplicaKey(directory.node_id, str(directory.directory_id)),
        format_voters=voter_set(directory.initial_voters),
    )
    return await QuorumLog.open(
        directory.metadata_path,
        config,
        NoPeers(),
        view_flushed_end=view_flushed_end,
        ambient=Ambient(ambient.now_ms, ambient.monotonic, ambient.sleep, ambient.random_fraction),
        on_failure=on_failure,
    )
