"""Keeps the quorum leader's snapshots in the store, from which a new quorum starts after a
disaster.

One pass takes a snapshot if the last is old, uploads the newest, and removes the oldest. A failed
pass is reported and repeated; it never stops the node. Create-only uploads make a snapshot in the
store whole and immutable.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import AlreadyExists, Conflict, NotFound, RetryLater
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.format.object_keys import snapshots_prefix
from rlm.stores.snapshot_plan import (
    SnapshotFacts,
    UploadedSnapshot,
    cluster_snapshots_prefix,
    is_snapshot_key,
    newest_of,
    parse_snapshot_key,
    snapshot_key,
    take_is_due,
    to_delete,
    to_upload,
)
from rlm.stores.tier_store import TierStore, listed_pages
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import check_snapshot, list_snapshots, snapshot_file_name
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import SnapshotId
from rsm_backends.multipart import Part, upload_whole_parts
from rsm_backends.store import PART_BYTES_MIN

logger = logging.getLogger(__name__)

WORK = "uploading the newest snapshot of the metadata"
LISTED_PAGES_MAX = 100
"""The most pages of 1000 snapshots that are listed; no cluster has more."""


@dataclass(frozen=True, slots=True)
class SnapshotUploadLimits:
    """A new snapshot is uploaded at least every `interval_s`; the newest `kept` remain.
    `check_interval_s` is the pause between two passes, `deadline_s` the bound of one.
    """

    interval_s: float = 3_600.0
    kept: int = 24
    check_interval_s: float = 60.0
    deadline_s: float = 900.0


@dataclass(slots=True)
class SnapshotUploader:
    """The task that uploads snapshots, one per node. `confirm_prefix` raises Refused once the
    prefix is a different cluster's. `directory` is where the metadata log keeps its snapshots.
    """

    metadata: RemoteLogMetadataManager
    directory: Path
    tier: TierStore
    _: KW_ONLY
    around: Surroundings
    confirm_prefix: Callable[[TierStore], Awaitable[None]]
    limits: SnapshotUploadLimits = SnapshotUploadLimits()
    _last_taken_ms: int | None = field(default=None, init=False)
    _uploaded: tuple[UploadedSnapshot, ...] | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _log: ProblemLog = field(default_factory=lambda: ProblemLog(logger), init=False)
    _trouble: str | None = field(default=None, init=False)

    def start(self) -> None:
        """Run passes at intervals until `close`."""
        self._task = asyncio.create_task(self._loop(), name="upload metadata snapshots")

    def problems(self) -> tuple[NodeProblem, ...]:
        """The reason why the last pass failed; empty if it succeeded."""
        if self._trouble is None:
            return ()
        text = (
            f"the newest snapshot of the metadata is not in the store {self.tier.name!r}: "
            f"{self._trouble}"
        )
        return (NodeProblem(ProblemArea.SNAPSHOTS, None, text),)

    async def close(self) -> None:
        """Stop, and abandon an upload under way. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - reported, logged, repeated
                self._trouble = str(error) or type(error).__name__
                self._log.failed(WORK, error)
            await self.around.ambient.sleep(self.limits.check_interval_s)

    async def run_once(self) -> None:
        """Make one pass. Raises the store's errors, RetryLater past the deadline, and CorruptData
        for a snapshot that is damaged on this node's disk.
        """
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                await self._pass()
        except TimeoutError:
            self._uploaded = None
            raise RetryLater(
                f"uploading a snapshot to the store {self.tier.name!r} took longer than "
                f"{self.limits.deadline_s:g} s"
            ) from None
        except BaseException:
            self._uploaded = None  # the store is listed again
            raise
        self._trouble = None
        self._log.works(WORK)

    async def _pass(self) -> None:
        if not self._leads():
            self._uploaded = None
            return
        if self._uploaded is None:
            self._uploaded = await self._list()
        facts = await self._facts()
        if take_is_due(facts, interval_ms=round(self.limits.interval_s * 1000)):
            await self.metadata.take_snapshot()
            self._last_taken_ms = self.around.ambient.now_ms()
            facts = await self._facts()
        snapshot = to_upload(facts)
        if snapshot is None:
            await self._check_store_not_ahead()
            return
        await self.confirm_prefix(self.tier)
        await self._upload(snapshot)
        # Old ones are deleted only now, when a newer snapshot is in the store.
        self._uploaded = await self._list()
        gone = to_delete(await self._facts(), kept=self.limits.kept)
        if gone:
            await self.tier.store.delete_many([self._key(each) for each in gone])
            self._uploaded = tuple(each for each in self._uploaded if each.snapshot not in gone)

    async def _check_store_not_ahead(self) -> None:
        """Raise Conflict while the store's newest snapshot ends above the log: no snapshot is
        uploaded then, and a restart from the latest would restore records that this cluster cut.
        """
        uploaded = newest_of(each.snapshot for each in self._uploaded or ())
        if uploaded is None or not self._leads() or not self._is_above_the_log(uploaded):
            return
        await self.metadata.catch_up()  # a new leader may not know its high watermark yet
        if self._leads() and self._is_above_the_log(uploaded):
            raise Conflict(
                f"{self._key(uploaded)} ends above this cluster's log, which was set back (by "
                "`quorum accept-cut`?), so no snapshot is uploaded until the log is as long again. "
                "If its records are needed, start a new cluster from it (disaster recovery); else "
                "remove it from the store",
                reason="SET_BACK",
            )

    def _is_above_the_log(self, snapshot: SnapshotId) -> bool:
        return snapshot.end_offset > self.metadata.describe().high_watermark

    def _leads(self) -> bool:
        return self.metadata.describe().leader_id == self.around.identity.incarnation.node_id

    async def _facts(self) -> SnapshotFacts:
        snapshots = await asyncio.to_thread(list_snapshots, OsDisk(), self.directory)
        return SnapshotFacts(
            leads=self._leads(),
            newest=newest_of(snapshots),
            uploaded=self._uploaded or (),
            last_taken_ms=self._last_taken_ms,
            has_segments=self.metadata.totals().copy_finished > 0,
            now_ms=self.around.ambient.now_ms(),
        )

    async def _list(self) -> tuple[UploadedSnapshot, ...]:
        return await uploaded_snapshots(self.tier, self.around.identity.cluster_id)

    async def _upload(self, snapshot: SnapshotId) -> None:
        path = self.directory / snapshot_file_name(snapshot)
        try:
            # A damaged snapshot would displace whole ones, and be noticed only in a disaster.
            await asyncio.to_thread(check_snapshot, OsDisk(), path)
            async with aclosing(_parts(path)) as parts:
                result = await upload_whole_parts(
                    self.tier.store, self._key(snapshot), parts, parallel=1, create_only=True
                )
        except AlreadyExists:
            # Equal offset, equal bytes: a different leader uploaded it.
            await self._remove_if_cut(snapshot, path)
            return
        except FileNotFoundError:
            raise RetryLater(f"{path} was removed meanwhile, because it is old") from None
        except OSError as error:
            raise RetryLater(f"{path} could not be read: {error}. Check the disk") from error
        logger.info("uploaded %s, %d bytes", self._key(snapshot), result.size)

    async def _remove_if_cut(self, snapshot: SnapshotId, path: Path) -> None:
        """Remove a snapshot of the store whose size is not the file's, so that it is uploaded anew:
        it would count as the newest, and older ones would be deleted. RetryLater if it was removed.
        """
        try:
            size = await asyncio.to_thread(os.path.getsize, path)
            found = (await self.tier.store.head(self._key(snapshot))).size
        except (FileNotFoundError, NotFound):
            return
        if found != size:
            await self.confirm_prefix(self.tier)
            await self.tier.store.delete_many([self._key(snapshot)])
            raise RetryLater(
                f"{self._key(snapshot)} has {found} bytes there, and {size} here: it was removed, "
                "and is uploaded anew. If this goes on, the store truncates what it reports stored"
            )

    def _key(self, snapshot: SnapshotId) -> str:
        return snapshot_key(self.tier.prefix, self.around.identity.cluster_id, snapshot)


async def uploaded_snapshots(tier: TierStore, cluster_id: str) -> tuple[UploadedSnapshot, ...]:
    """A cluster's snapshots in the store, in key order."""
    prefix = cluster_snapshots_prefix(tier.prefix, cluster_id)
    async with aclosing(listed_pages(tier, prefix, pages_max=LISTED_PAGES_MAX)) as pages:
        listed = [info async for page in pages for info in page]
    return tuple(
        UploadedSnapshot(snapshot, info.last_modified_ms)
        for info in listed
        if (snapshot := parse_snapshot_key(tier.prefix, cluster_id, info.key)) is not None
    )


async def snapshot_owners(tier: TierStore) -> tuple[str, ...]:
    """Ids of the clusters with snapshots in the store; the one that uploaded last comes last."""
    prefix = snapshots_prefix(tier.prefix)
    last_ms: dict[str, int] = {}
    async with aclosing(listed_pages(tier, prefix, pages_max=LISTED_PAGES_MAX)) as pages:
        async for page in pages:
            for info in page:
                if is_snapshot_key(tier.prefix, info.key):
                    owner = info.key[len(prefix) :].partition("/")[0]
                    last_ms[owner] = max(last_ms.get(owner, 0), info.last_modified_ms or 0)
    return tuple(sorted(last_ms, key=lambda owner: (last_ms[owner], owner)))


async def _parts(path: Path) -> AsyncGenerator[Part]:
    """The file in parts, read and checksummed in threads; it may be unlinked while it is read."""
    descriptor = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        while (part := await asyncio.to_thread(_part, descriptor, position)).data:
            position += len(part.data)
            yield part
    finally:
        os.close(descriptor)


def _part(descriptor: int, position: int) -> Part:
    data = os.pread(descriptor, PART_BYTES_MIN, position)
    return Part(data, crc32c(data))
