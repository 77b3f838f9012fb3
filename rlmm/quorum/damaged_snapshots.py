"""Snapshots that can't be read: they are reported, and set aside if the log is complete without
them.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from kafka_formats.errors import RetryLater
from rlmm.log.log_directory import LogDirectory
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.troubles import DAMAGED_SNAPSHOT, QuorumTroubles
from rlmm.raft.events import Event, SnapshotsDeleted
from rlmm.raft.messages import SnapshotId as CoreSnapshotId

log = logging.getLogger(__name__)


def set_aside_text(path: Path, error: Exception) -> str:
    """The log line about a snapshot that was set aside."""
    return (
        f"snapshot {path.name} of the metadata is damaged and set aside: {error}. The log and the "
        "other snapshots are enough without it. Check the disk"
    )


class Owner(Protocol):
    """The replica's driver."""

    troubles: QuorumTroubles

    @property
    def is_sole_voter(self) -> bool: ...

    def feed(self, event: Event) -> None: ...


class DamagedSnapshots:
    """The damaged snapshots that a running replica finds; used on the event loop.

    `unreadable`: damaged ones that the start of the log needs, until a new snapshot is complete.
    `lost` is set when a new snapshot has to be taken.
    """

    def __init__(self, owner: Owner, directory: LogDirectory, writer: ThreadPoolExecutor) -> None:
        self.unreadable: set[SnapshotId] = set()
        self.lost = asyncio.Event()
        self._owner = owner
        self._directory = directory
        self._writer = writer

    async def set_aside(self, snapshot: SnapshotId, error: Exception) -> bool:
        """Rename a snapshot to set it aside. False: the log's start needs it. RetryLater: the disk
        failed.

        Other nodes that request it get a different snapshot, or the log.
        """
        loop, path = asyncio.get_running_loop(), self._directory.snapshot_path(snapshot)
        if not await loop.run_in_executor(self._writer, self._directory.set_aside, snapshot):
            return False
        log.error("%s", set_aside_text(path, error))
        self.tell()
        self._owner.feed(SnapshotsDeleted((CoreSnapshotId(*snapshot),)))
        self.lost.set()
        return True

    async def found(self, damaged: CoreSnapshotId, error: Exception) -> bool:
        """Handle a damaged snapshot; False if the node has to stop. If the log's start needs it,
        the sole voter takes a new snapshot of its own complete state, and any other node stops.
        """
        snapshot = SnapshotId(*damaged)
        try:
            if await self.set_aside(snapshot, error):
                return True
        except RetryLater:
            return False
        if self._owner.is_sole_voter and snapshot not in self.unreadable:
            self._stays(snapshot, error)
        return self._owner.is_sole_voter

    def _stays(self, snapshot: SnapshotId, error: Exception) -> None:
        self.unreadable.add(snapshot)
        text = (
            f"snapshot {self._directory.snapshot_path(snapshot).name} of the metadata is damaged, "
            f"and the start of the log needs it: {error}. A new one is taken of this node's state. "
            "Check the disk, and keep the node running until this message is gone"
        )
        log.error("%s", text)
        self._owner.troubles.began(DAMAGED_SNAPSHOT, text)
        self.lost.set()

    def tell(self) -> None:
        """Bring the status up to date with the files that were set aside."""
        if not (names := self._directory.damaged_snapshots()):
            self._owner.troubles.over(DAMAGED_SNAPSHOT)
            return
        self._owner.troubles.began(
            DAMAGED_SNAPSHOT,
            f"damaged snapshots of the metadata were set aside in {self._directory.directory}: "
            f"{', '.join(names)}. The node needs none of them. Check the disk, then remove them",
        )
