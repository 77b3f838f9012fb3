"""The metadata part of a node as it runs: a quorum of one, the view, the manager."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Voter
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.network_ports import NoPeers
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.messages import ReplicaKey
from rlmm.view.view import View
from strandline.node import ambient
from tests.rlmm.metadata_node import DIRECTORY_ID, NODE_ID, NOW_MS, incarnation

VOTERS = (Voter(NODE_ID, DIRECTORY_ID),)


@dataclass
class QuorumNode:
    """One life, until `close`; `failures` are what would have stopped the process."""

    log: QuorumLog
    view: View
    manager: RemoteLogMetadataManager
    failures: list[str] = field(default_factory=list)

    async def close(self) -> None:
        await self.manager.close()
        await self.log.close()
        self.view.close()


async def open_node(
    home: Path,
    *,
    boot: int = 1,
    limits: MetadataLimits | None = None,
    log_limits: LogLimits | None = None,
) -> QuorumNode:
    failures: list[str] = []
    view = await asyncio.to_thread(View.open, home / "view")
    try:
        log = await QuorumLog.open(
            Place(home / "metadata"),
            QuorumConfig(
                cluster_id="cluster",
                key=ReplicaKey(NODE_ID, str(DIRECTORY_ID)),
                format_voters=voter_set(VOTERS),
            ),
            NoPeers(),
            view_flushed_end=view.flushed_offset + 1,
            # Record time stands still, so that equal records give equal rows in every run.
            ambient=Ambient(
                lambda: NOW_MS, ambient.monotonic, ambient.sleep, ambient.random_fraction
            ),
            on_failure=failures.append,
            limits=log_limits,
        )
        try:
            manager = await RemoteLogMetadataManager.start(
                log,
                view,
                incarnation=incarnation(boot),
                now_ms=lambda: NOW_MS,
                limits=limits,
                on_failure=failures.append,
            )
        except BaseException:
            await log.close()
            raise
    except BaseException:
        view.close()
        raise
    return QuorumNode(log, view, manager, failures)
