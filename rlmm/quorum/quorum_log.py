"""The metadata log of a quorum of one or more voters: `MetadataLog` over core and driver.

Proposals go to the leader, on whichever node it is; reads are local, below the committed and
durable end. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RetryLater,
)
from rlmm.log.committed import committed_group
from rlmm.log.log_limits import LogLimits
from rlmm.log.snapshot_files import SnapshotWriter, read_snapshot
from rlmm.metadata_log import (
    CommittedGroup,
    CommittedRecord,
    LogDescription,
    Proposal,
    SnapshotId,
    SnapshotSink,
)
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.description import Surroundings, describe
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.envelopes import Envelopes
from rlmm.quorum.framing import NO_OP, stored_voters
from rlmm.quorum.initial_state import Replica, open_replica
from rlmm.quorum.log_cut import cut_log, tell_of_cut
from rlmm.quorum.network_ports import Peers
from rlmm.quorum.observer import DriverCallbacks, QuorumStats
from rlmm.quorum.own_proposals import Proposals
from rlmm.quorum.proposal_queue import ProposalQueue
from rlmm.quorum.troubles import SNAPSHOT, QuorumTroubles
from rlmm.raft.events import BarrierRequested, LogStartAdvanced, Shutdown, SnapshotsDeleted
from rlmm.raft.events import SnapshotTaken as CoreSnapshotTaken
from rlmm.raft.messages import SnapshotId as CoreSnapshotId

log = logging.getLogger(__name__)
T = TypeVar("T")

GROUP_RECORDS_MAX = 512
ESTABLISH_DEADLINE_S = 10.0


class QuorumLog:
    """`MetadataLog` of one replica, made by `open`; a listener serves `driver` to other nodes."""

    def __init__(
        self,
        config: QuorumConfig,
        replica: Replica,
        peers: Peers,
        *,
        ambient: Ambient,
        on_failure: Callable[[str], None],
        limits: LogLimits,
    ) -> None:
        self._config = config
        self._core, self._directory, self._disk, self._writer, self._reader = replica
        self._peers = peers
        self._ambient = ambient
        self._limits = limits
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._recovery_point_due = asyncio.Event()
        self._may_truncate_to = 0
        self._closed = False
        self._recovery_point_task: asyncio.Task[None] | None = None
        self._finishing: set[asyncio.Future[None]] = set()
        self.stats = QuorumStats(ambient.monotonic)
        self.envelopes = Envelopes()
        self.driver = QuorumDriver(
            replica,
            peers,
            config,
            ambient,
            DriverCallbacks(self._on_advance, self._on_role, self._failed, self.stats),
            recent_bytes_max=limits.recent_bytes_max,
        )
        self._on_failure = on_failure
        self._proposals = Proposals(
            self.driver,
            peers,
            ProposalQueue(limits),
            now_ms=ambient.now_ms,
            monotonic=ambient.monotonic,
            sleep=ambient.sleep,
            retry_backoff_s=config.settings.retry_backoff_ms / 1000,
        )

    @classmethod
    async def open(
        cls,
        place: Place,
        config: QuorumConfig,
        peers: Peers,
        *,
        view_flushed_end: int,
        ambient: Ambient,
        on_failure: Callable[[str], None],
        limits: LogLimits | None = None,
    ) -> QuorumLog:
        """Recover and join the quorum. A sole voter leads on return; other nodes may not know a
        leader yet.

        `view_flushed_end` is the offset below which the view has everything durably (0: nothing).
        `on_failure` is called once if the log fails: the node has to stop then. CorruptData: the
        log, the quorum state or the recovery point is damaged where it must not be.
        """
        limits = limits or LogLimits()
        writer = ThreadPoolExecutor(1, thread_name_prefix="metadata-log-writer")
        reader = ThreadPoolExecutor(1, thread_name_prefix="metadata-log-reader")

        try:
            opening = partial(
                open_replica,
                place,
                config,
                view_flushed_end=view_flushed_end,
                segment_bytes_max=limits.segment_bytes_max,
                jitter=ambient.random_fraction,
            )
            loop = asyncio.get_running_loop()
            directory, core = await loop.run_in_executor(writer, opening)
        except BaseException as error:
            writer.shutdown(wait=False)
            reader.shutdown(wait=False)
            if isinstance(error, OSError):
                raise _open_failed(place.metadata_directory, error) from error
            raise
        replica = Replica(core, directory, place.disk, writer, reader)
        self = cls(config, replica, peers, ambient=ambient, on_failure=on_failure, limits=limits)
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self) -> None:
        self._recovery_point_task = asyncio.create_task(
            self._recovery_point_loop(), name="metadata-log-recovery-point"
        )
        self.driver.start()
        self.driver.snapshots.tell()
        if not self.driver.is_sole_voter:
            return
        async with asyncio.timeout(ESTABLISH_DEADLINE_S):
            while not self._core.established and self.driver.failure is None:
                await asyncio.shield(self._advanced)
        self._check_open()

    async def propose(self, proposals: tuple[Proposal, ...], *, deadline_s: float) -> int:
        self._check_open()
        return await self._proposals.propose(proposals, deadline_s=deadline_s)

    async def barrier(self, *, deadline_s: float) -> int:
        self._check_open()
        if self._core.established and self.driver.is_sole_voter:
            # No other node can lead, and every completed write is below this high watermark.
            return self.driver.high_watermark
        if not self._core.established:
            no_op = (Proposal(NO_OP, b""),)
            try:
                return await self._proposals.propose(no_op, deadline_s=deadline_s) + 1
            except OutcomeUnknown as error:
                raise RetryLater("the metadata quorum's leader changed; ask again") from error
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(deadline_s):
                self.driver.feed(BarrierRequested(waiting))
                return await waiting
        except TimeoutError as error:
            raise RetryLater(
                f"the metadata quorum did not confirm its leader within {deadline_s:g} s"
            ) from error

    def _on_role(self) -> None:
        self._proposals.role_changed()

    def _on_advance(self) -> None:
        self._recovery_point_due.set()
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        if not advanced.done():
            advanced.set_result(None)

    def _failed(self, message: str) -> None:
        self._proposals.log_failed(message)
        self._on_failure(message)

    async def _recovery_point_loop(self) -> None:
        """Store the end of the durable log about once a second."""
        while True:
            await self._recovery_point_due.wait()
            await self._ambient.sleep(self._limits.recovery_point_interval_s)
            self._recovery_point_due.clear()
            if self.driver.failure is not None:
                return
            await self.store_recovery_point()

    async def store_recovery_point(self) -> int:
        if self.driver.failure is None:
            try:
                return await self._in(self._reader, self._directory.store_recovery_point)
            except (OSError, RetryLater) as error:
                self.driver.fail(str(error))
        return self._directory.synced_end

    async def follow(self, from_offset: int) -> AsyncIterator[CommittedGroup]:
        position = from_offset
        while not self._closed:
            if self.driver.failure is not None:
                raise RetryLater(self.driver.failure)
            if position >= self.driver.apply_to:
                await asyncio.shield(self._advanced)
                continue
            group = await self._group_at(position)
            if group is None:
                await asyncio.shield(self._advanced)
                continue
            yield replace(group, advanced_s=self.stats.take_advanced_s())
            position = group.end_offset

    async def read(self, from_offset: int, *, limit: int) -> tuple[CommittedRecord, ...]:
        found: list[CommittedRecord] = []
        position = from_offset
        while len(found) < limit and position < self.driver.apply_to:
            group = await self._group_at(position)
            if group is None:
                break
            found.extend(group.records)
            position = group.end_offset
        return tuple(found[:limit])

    async def _group_at(self, position: int) -> CommittedGroup | None:
        """The group of the batch at `position`; None if the batch is not committed whole."""
        if position < self._directory.log_start_offset:
            raise NotFound(
                f"offset {position} is below the metadata log's start "
                f"{self._directory.log_start_offset}: install a snapshot first"
            )
        end = self.driver.apply_to
        group = self.driver.tail.group_at(position, end, GROUP_RECORDS_MAX)
        if group is not None:
            return group
        return await self._read_in(self._read_group, position, end)

    async def _read_in(self, call: Callable[..., T], *args: object) -> T:
        """Run `call` in the reader's thread; damage stops this node."""
        try:
            return await self._in(self._reader, call, *args)
        except CorruptData as error:
            self.driver.damaged(error)
            raise
        except OSError as error:
            raise self.driver.unread(error) from error

    def _read_group(self, position: int, end: int) -> CommittedGroup | None:
        batches = self._directory.read(position, end, bytes_max=self._limits.read_bytes_max)
        return committed_group(batches, position) if batches else None

    def latest_snapshot(self) -> SnapshotId | None:
        unreadable = self.driver.snapshots.unreadable
        found = (each for each in self._directory.snapshots() if each not in unreadable)
        return max((each for each in found if each.end_offset > 0), default=None)

    async def set_aside(self, snapshot: SnapshotId, error: CorruptData) -> bool:
        return await self.driver.snapshots.set_aside(snapshot, error)

    async def snapshot_lost(self) -> None:
        await self.driver.snapshots.lost.wait()
        self.driver.snapshots.lost.clear()

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[Proposal]:
        return read_snapshot(self._disk, self._directory.snapshot_path(snapshot))

    async def begin_snapshot(
        self, snapshot: SnapshotId, *, last_contained_timestamp_ms: int
    ) -> SnapshotSink:
        self._check_open()
        wanted = CoreSnapshotId(snapshot.end_offset, snapshot.epoch)
        is_new = snapshot not in self.driver.snapshots.unreadable
        if is_new and snapshot in self._directory.snapshots():
            raise Conflict(f"snapshot {snapshot} exists", reason="ALREADY_EXISTS")
        refusal = self._core.snapshot_refusal(wanted) if is_new else None
        if refusal is not None:
            raise InvalidRequest(
                f"no snapshot up to {snapshot.end_offset} may be taken: {refusal}", field="snapshot"
            )
        border = await self._read_in(self._directory.border_from, wanted.end_offset)
        if border != wanted.end_offset:
            raise RetryLater(
                f"no snapshot up to {wanted.end_offset} may be taken: it would end inside the "
                f"record batch that ends at {border}"
            )
        open_writer = partial(
            SnapshotWriter,
            self._disk,
            self._directory.directory,
            snapshot,
            last_contained_timestamp_ms=last_contained_timestamp_ms,
            voters=stored_voters(self._core.voters_at(snapshot.end_offset)),
        )
        try:
            writer = await self._in(self._reader, open_writer)
        except OSError as error:
            raise _snapshot_failed(self.driver.troubles, error) from error
        return _Sink(writer, self, wanted)

    async def snapshot_finished(self, writer: SnapshotWriter, snapshot: CoreSnapshotId) -> None:
        """Complete the snapshot, report it to the core, and cut the log: to the end, also if the
        caller gives up. A core that does not learn of a cut sends replicas neither the log below it
        nor a snapshot.
        """
        finishing = asyncio.ensure_future(self._finish_snapshot(writer, snapshot))
        self._finishing.add(finishing)
        finishing.add_done_callback(self._finishing.discard)
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            finishing.add_done_callback(self._report)
            raise

    def _report(self, finishing: asyncio.Future[None]) -> None:
        """Show the failure of a snapshot whose caller gave up; nobody else gets it."""
        if not finishing.cancelled() and (error := finishing.exception()) is not None:
            _snapshot_failed(self.driver.troubles, error)

    async def _finish_snapshot(self, writer: SnapshotWriter, snapshot: CoreSnapshotId) -> None:
        def finish() -> int:
            # First, so that recovery notices damage in a log that ends below this snapshot.
            self._directory.store_recovery_point()
            return self._disk.size(writer.finish())

        size = await self._in(self._reader, finish)
        self.driver.troubles.over(SNAPSHOT)
        self.driver.snapshots.unreadable.clear()
        self.driver.feed(CoreSnapshotTaken(snapshot, size))
        await self._cut()

    async def _cut(self) -> None:
        """Cut the log up to what both a snapshot and the flushed view include, and keep the files
        that replicas need which download a snapshot.
        """
        newest = self.latest_snapshot()
        if newest is None:
            return
        up_to = min(newest.end_offset, self._may_truncate_to)
        wanted = tuple(SnapshotId(*each) for each in self._core.snapshots_wanted())
        # The core gets the log start as the cut left it: a snapshot may replace the log, in the
        # same thread, before that event arrives.
        done = await self._in(self._writer, cut_log, self._directory, up_to, wanted, self._limits)
        tell_of_cut(self.driver.troubles, self._directory, done)
        self.driver.snapshots.tell()
        self.driver.feed(LogStartAdvanced(done.log_start_offset))
        if done.removed:
            ids = tuple(CoreSnapshotId(each.end_offset, each.epoch) for each in done.removed)
            self.driver.feed(SnapshotsDeleted(ids))

    def allow_truncation_to(self, offset: int) -> None:
        self._may_truncate_to = max(self._may_truncate_to, offset)

    def describe(self) -> LogDescription:
        ambient = self._ambient
        around = Surroundings(
            cluster_id=self._config.cluster_id,
            listener_name=self._config.listener_name,
            high_watermark=self.driver.high_watermark,
            log_start_offset=self._directory.log_start_offset,
            clock_ahead_ms=ambient.now_ms() - int(ambient.monotonic() * 1000),
            stopped=self.driver.failure is not None or self._closed,
            troubles=self.driver.troubles.standing(),
        )
        return describe(self._core, around)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        deadline_s = 2 * self._config.settings.shutdown_timeout_ms / 1000
        await self._proposals.close(
            "the metadata log is closed: the node is shutting down", deadline_s=deadline_s
        )
        if self.driver.failure is None:
            self.driver.feed(Shutdown())
            try:
                async with asyncio.timeout(deadline_s):
                    await self.driver.shutdown_done.wait()
            except TimeoutError:
                log.warning(
                    "the quorum was not informed of this node's end within %g s", deadline_s
                )
        await self._proposals.stop()
        await self.driver.stop()
        if self._recovery_point_task is not None:
            self._recovery_point_task.cancel()
            await asyncio.gather(self._recovery_point_task, return_exceptions=True)
        self._on_advance()
        await self._peers.close()
        await asyncio.gather(*self._finishing, return_exceptions=True)
        # Wait for the thread in any case: it must not work in a directory that others open next.
        last = self._directory.store_recovery_point if self.driver.failure is None else _nothing
        await self._in(self._reader, last)
        await self._in(self._writer, self._directory.close)
        self._writer.shutdown(wait=False)
        self._reader.shutdown(wait=False)

    def _check_open(self) -> None:
        if self.driver.failure is not None:
            raise RetryLater(self.driver.failure)
        if self._closed:
            raise RetryLater("the metadata log is closed: the node is shutting down")

    async def in_reader(self, call: Callable[[], T]) -> T:
        """Run `call` in the thread that reads and writes snapshots."""
        return await self._in(self._reader, call)

    async def _in(self, executor: ThreadPoolExecutor, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, call, *args)


class _Sink:
    """A snapshot being written, in the reader's thread."""

    def __init__(self, writer: SnapshotWriter, owner: QuorumLog, snapshot: CoreSnapshotId) -> None:
        self._writer = writer
        self._owner = owner
        self._snapshot = snapshot

    async def add(self, rows: Iterable[Proposal]) -> None:
        await self._run(partial(self._writer.add, rows))

    async def finish(self) -> None:
        try:
            await self._owner.snapshot_finished(self._writer, self._snapshot)
        except OSError as error:
            raise _snapshot_failed(self._owner.driver.troubles, error) from error

    async def abandon(self) -> None:
        await self._run(self._writer.abandon)

    async def _run(self, call: Callable[[], object]) -> None:
        try:
            await self._owner.in_reader(call)
        except OSError as error:
            raise _snapshot_failed(self._owner.driver.troubles, error) from error


def _nothing() -> None:
    pass


def _open_failed(metadata_directory: Path, error: OSError) -> RetryLater:
    return RetryLater(
        f"the metadata log in {metadata_directory} could not be opened: {error}. Check the disk "
        "and its free space, then start the node again"
    )


def _snapshot_failed(troubles: QuorumTroubles, error: BaseException) -> RetryLater:
    text = f"the snapshot could not be written: {error}. Check the disk and its free space"
    troubles.began(SNAPSHOT, text)
    return RetryLater(text, retry_after_ms=60_000)
